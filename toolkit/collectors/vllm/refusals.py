"""Values of variables at which this vLLM stops, read from its sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, walk

EXPANDABLE = "expandable_segments:True"
_ALLOCATOR = "device_allocator/cumem.py"
# The engine that AsyncLLM replaced: a class as long as both exist, an alias since.
_OLD_ENGINE = ("engine/llm_engine.py", "LLMEngine")
_NEW_ENGINE = ("v1/engine/llm_engine.py", "VLLM_USE_V1")


@dataclass(frozen=True)
class VllmRefusals:
    """Values with which this vLLM does not start.

    `expandable` is the place (path:line) that rejects `expandable_segments:True` in PYTORCH_CUDA_ALLOC_CONF
    when sleep mode begins, "" if there is none. `old_engine` is the place that rejects VLLM_USE_V1=0 once
    there is no V0 engine, else "".
    """

    version: str
    expandable: str = ""
    old_engine: str = ""


@collector(timeout=10, kept=True)
def vllm_refusals(vllm: VllmTree) -> VllmRefusals | Unknown:
    """Read the files that decide it. An unreadable file counts as rejecting nothing."""
    folder, version = Path(vllm.tree.folder), vllm.tree.version
    files = [folder / file for file in (_ALLOCATOR, _OLD_ENGINE[0], _NEW_ENGINE[0])]
    return remembered(VllmRefusals, version, files, partial(_read, folder, version))


def _read(folder: Path, version: str) -> VllmRefusals:
    return VllmRefusals(
        version,
        next(_assertions(folder / _ALLOCATOR), ""),
        "" if _has_old_engine(folder) else next(_refusals(folder / _NEW_ENGINE[0]), ""),
    )


def _assertions(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Assert) and any(
            isinstance(part, ast.Constant) and part.value == EXPANDABLE for part in walk(node.test)
        ):
            yield f"{path}:{node.lineno}"


def _has_old_engine(folder: Path) -> bool:
    file, name = _OLD_ENGINE
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in _nodes(folder / file))


def _refusals(path: Path) -> Iterator[str]:
    """Yield where `if not envs.VLLM_USE_V1:` raises."""
    for node in _nodes(path):
        if isinstance(node, ast.If) and ast.unparse(node.test) == f"not envs.{_NEW_ENGINE[1]}":
            for statement in node.body:
                if isinstance(statement, ast.Raise):
                    yield f"{path}:{statement.lineno}"


def _nodes(path: Path) -> Iterator[ast.AST]:
    tree = parse_file(path)
    return iter(()) if isinstance(tree, Unreadable) else walk(tree)
