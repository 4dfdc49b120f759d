"""The user's files that import names from their own module, not from the installed one of the same name."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import Unreadable, parse, parsed, read

_MOST_FILES = 2000
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})


def importer(name: str, own: Path) -> str | None:
    """A file next to a module or package `own` that imports a name that only `own` has.

    The result is "" for none, None if unknown.
    """
    names = _names(own)
    for number, path in enumerate(_python_files(own.parent, own)):
        content = read(path)
        if number == _MOST_FILES or isinstance(content, Unreadable):
            return None
        if name.encode() not in content:
            continue
        tree = parse(content, path)
        if not isinstance(tree, ast.Module) or names is None:
            return str(path)
        if any(taken == "*" or taken in names for taken in _taken(tree, name)):
            return str(path)
    return ""


def _names(own: Path) -> frozenset[str] | None:
    """Return the names that can be imported from the module or package, and its modules."""
    source = own / "__init__.py" if os.path.isdir(own) else own
    tree = parsed(source)
    names = _defined(tree) if isinstance(tree, ast.Module) else None
    if names is None or not os.path.isdir(own):
        return names
    inside = os.listdir(own)  # noqa: PTH208 - names alone
    return names | {name.removesuffix(".py") for name in inside} - {"__init__"}


def _defined(tree: ast.Module) -> frozenset[str] | None:
    """Return the names that a module's statements bind at any depth; None if it imports all of another's."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    return None if "*" in found else frozenset(found)


def _python_files(folder: Path, but: Path) -> Iterator[Path]:
    """Yield Python files in and below a folder, except hidden folders, environments and the module itself."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = [
            name
            for name in folders
            if name not in _NOT_OURS
            and not name.startswith(".")
            and here / name != but
            and not os.path.exists(here / name / "pyvenv.cfg")
        ]
        yield from (here / name for name in files if name.endswith(".py") and here / name != but)


def _taken(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the names that a file imports from a module, "*" for all of them."""
    aliases: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            top, _, rest = node.module.partition(".")
            if top == name:
                yield from [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top, _, rest = alias.name.partition(".")
                if top == name:
                    aliases.add(alias.asname or name)
                    yield from [rest.partition(".")[0]] if rest else []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield node.attr
