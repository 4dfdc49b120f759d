"""How the installed vLLM reads weights, by its sources: load formats and strategies for safetensors.

The default depends on the release: since 0.20 it reads ahead on a recognised network file system.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse, parse_file, read, walk

STRATEGY = "safetensors_load_strategy"
_LOADERS = "model_executor/model_loader"
# Where vLLM 0.8 to 0.33 list their load formats: a Literal, a table of loaders, or before 0.10.1 an
# enumeration.
_LISTED = (f"{_LOADERS}/__init__.py", "config.py", "config/__init__.py", "config/load.py")
_READING = f"{_LOADERS}/weight_utils.py"
_DEFAULT = f"{_LOADERS}/default_loader.py"
_ENUMERATION = "LoadFormat"
_LISTS = ("LoadFormats", "_LOAD_FORMAT_TO_MODEL_LOADER")
_LAZY = "lazy"  # the strategy if no other is requested


@dataclass(frozen=True)
class VllmLoading:
    """`formats` are the values of load_format.

    `strategies` are those of safetensors_load_strategy, empty if it does not exist.

    `reads_ahead_on` are the file systems on which it prefetches by default, empty if it never does.
    `threads`: it has loaders that read several files at a time (`enable_multithread_load`).
    """

    version: str
    formats: tuple[str, ...]
    strategies: tuple[str, ...] = ()
    reads_ahead_on: tuple[str, ...] = ()
    threads: bool = False
    read_from: str = ""


@collector()
def vllm_loading(vllm: VllmTree, _files: ModelFiles) -> VllmLoading | Unknown:
    """Read three files of vLLM, for a job whose model has weights here."""
    folder = Path(vllm.tree.folder)
    formats = next(filter(None, (_formats(folder / name) for name in _LISTED)), ())
    if not formats:
        return Unknown(f"the load formats of vLLM {vllm.tree.version} were not found")
    tree = parse_file(folder / _READING)
    compared = set() if isinstance(tree, Unreadable) else set(_compared(tree))
    strategies = {text for name, text in compared if name == STRATEGY}
    default = read(folder / _DEFAULT)
    return VllmLoading(
        vllm.tree.version,
        formats,
        tuple(sorted({_LAZY, *strategies})) if strategies else (),
        tuple(sorted(text for name, text in compared if name == "fs_type")),
        isinstance(default, bytes) and b"enable_multithread_load" in default,
        str(folder / _READING),
    )


def _formats(path: Path) -> tuple[str, ...]:
    """Return the texts in the list of load formats of one file, empty if it has none."""
    source = read(path)
    if not isinstance(source, bytes) or not any(name.encode() in source for name in (_ENUMERATION, *_LISTS)):
        return ()
    tree = parse(source, path)
    return () if isinstance(tree, Unreadable) else tuple(sorted(set(_listed(tree))))


def _listed(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) if name == _ENUMERATION:
                yield from _texts(
                    *(statement.value for statement in node.body if isinstance(statement, ast.Assign))
                )
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _LISTS:
                yield from _texts(*value.keys) if isinstance(value, ast.Dict) else _texts(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys)) if name in _LISTS:
                yield from _texts(*keys)


def _texts(*nodes: ast.AST | None) -> Iterator[str]:
    for node in nodes:
        for inner in walk(node) if node is not None else ():
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value


def _compared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the texts with which a variable is compared, each with its name: `fs_type in ("nfs", "nfs4")`."""
    for node in walk(tree):
        match node:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.In()], comparators=[right]):
                yield from ((name, text) for text in _texts(right))
