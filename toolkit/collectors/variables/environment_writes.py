"""Where source code sets variables in its own environment under a constant name.

Cached, because the search is slow.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.python.source import dotted, parse, read, walk

_ENVIRON = "os.environ"


@dataclass(frozen=True)
class Write:
    """One statement that sets a variable, or removes it (`removed`).

    `value` is None if it is computed. `within` is the enclosing function, "Class.method", "" for none;
    `asked_first`: that function also reads the variable and may leave it unchanged.
    """

    name: str
    value: str | None
    path: str
    line: int
    within: str = ""
    removed: bool = False
    asked_first: bool = False


@dataclass(frozen=True)
class Writes:
    """All writes in some files."""

    found: tuple[Write, ...] = ()


def writes(folder: Path, parts: Iterable[str]) -> tuple[Write, ...]:
    """Return what the Python sources among these parts of a package, files or folders below `folder`, set."""
    places = [folder / part for part in parts]
    found = remembered(Writes, "writes", places, partial(_writes, places))
    return () if isinstance(found, Unknown) else found.found


def _writes(places: Iterable[Path]) -> Writes:
    files = [
        file
        for place in places
        for file in ([place] if os.path.isfile(place) else sorted(place.rglob("*.py")))
    ]
    return Writes(tuple(write for file in files for write in _in_file(file)))


def _in_file(path: Path) -> Iterator[Write]:
    source = read(path)
    tree = parse(source, path) if isinstance(source, bytes) and b"environ" in source else None
    return _in_body(tree.body, path, "", None) if isinstance(tree, ast.Module) else iter(())


def _in_body(body: Iterable[ast.stmt], path: Path, within: str, function: ast.AST | None) -> Iterator[Write]:
    for node in body:
        if (write := _write(node, path, within, function)) is not None:
            yield write
        inside, around = within, function
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = f"{within}.{node.name}".lstrip(".")
            around = None if isinstance(node, ast.ClassDef) else node
        for block in ("body", "orelse", "finalbody"):
            yield from _in_body(getattr(node, block, ()), path, inside, around)
        for handler in getattr(node, "handlers", ()):
            yield from _in_body(handler.body, path, inside, around)


def _write(node: ast.stmt, path: Path, within: str, function: ast.AST | None) -> Write | None:
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=owner, slice=ast.Constant(value=str(name)))], value=value
        ) if dotted(owner) == _ENVIRON:
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
            requested = function is not None and _reads(function, name)
            return Write(name, text, str(path), node.lineno, within, asked_first=requested)
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=owner, attr="setdefault" | "pop" as method),
                args=[ast.Constant(value=str(name)), *_],
            )
        ) if dotted(owner) == _ENVIRON:
            removed = method == "pop"
            return Write(name, None, str(path), node.lineno, within, removed, asked_first=not removed)
    return None


def _reads(function: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and dotted(node.func) in (f"{_ENVIRON}.get", "os.getenv")
        and any(isinstance(word, ast.Constant) and word.value == name for word in node.args)
        for node in walk(function)
    )
