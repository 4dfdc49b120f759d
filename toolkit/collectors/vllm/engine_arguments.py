"""Names this vLLM accepts for its engine: argument class fields, command-line options, LLM parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, read, walk

SECTION = "actor_rollout_ref.rollout.engine_kwargs.vllm"  # what verl passes to vLLM
# Where vLLM 0.8 to 0.33 define them. All have the first; other files missing from a release are skipped.
_FILES = (
    "engine/arg_utils.py",
    "entrypoints/openai/cli_args.py",
    "entrypoints/launchers/cli_args.py",
    "entrypoints/cli/serve.py",
    "entrypoints/llm.py",
)
_CLASSES = frozenset({"EngineArgs", "AsyncEngineArgs", "FrontendArgs", "BaseFrontendArgs"})
_ROLLOUT = "workers/rollout/vllm_rollout"


@dataclass(frozen=True)
class EngineArguments:
    """The arguments that this vLLM accepts (`names`), and further ones of verl's own (`by_verl`).

    The latter are names that verl's own rollout takes out of `engine_kwargs`.
    """

    version: str
    names: tuple[str, ...]
    read_from: str
    by_verl: tuple[str, ...] = ()


@collector(kept=True)
def engine_arguments(
    configuration: Configuration, vllm: VllmTree, trees: VerlTrees | Unknown
) -> EngineArguments | Unknown:
    """Read them from both sources, which takes longer than most facts, for a job that passes any."""
    if not any(word.key.startswith(SECTION) for word in configuration.overrides):
        return Absent("the job passes no engine arguments to vLLM")
    folder = Path(vllm.tree.folder)
    names: set[str] = set()
    for name in _FILES:
        tree = parse_file(folder / name)
        if not isinstance(tree, Unreadable):
            names.update(_names(tree))
        if name == _FILES[0] and "model" not in names:
            return Unknown(f"{folder / name} has no readable class EngineArgs")
    by_verl = (
        set() if isinstance(trees, Unknown) else set(_taken_by_verl(Path(trees.imported.folder) / _ROLLOUT))
    )
    return EngineArguments(
        vllm.tree.version, tuple(sorted(names)), str(folder / _FILES[0]), tuple(sorted(by_verl))
    )


def _names(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in _CLASSES:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id
        elif isinstance(node, ast.ClassDef) and node.name == "LLM":
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    _self, *arguments = (*statement.args.args, *statement.args.kwonlyargs)
                    yield from (argument.arg for argument in arguments)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value[2:].replace("-", "_")


def _taken_by_verl(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        source = read(path)
        if isinstance(source, bytes):
            found = re.findall(rb"engine_kwargs\.pop\(\s*[\"'](\w+)", source)
            yield from (name.decode() for name in found)
