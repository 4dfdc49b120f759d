"""The packages that verl imports when it opens a tracker, read from its `Tracking`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import dotted, parsed, statements, walk

_IMPORTED_BY = {"torch.utils.tensorboard": "tensorboard"}
"""A module that is there without the package that it imports (torch/utils/tensorboard/__init__.py)."""


def tracker_imports(verl: Path, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield a tracker's name, the module that it needs, and where verl imports that, as "path:line".

    verl opens each tracker in an `if` on its name, and imports its package there or in the class that it
    calls.
    """
    path = verl / "utils/tracking.py"
    tree = parsed(path)
    if tree is None:
        return
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    opens = [node for node in statements(tree) if isinstance(node, ast.If)]
    for name in names:
        block = next((node for node in opens if _is_asked_for(name, node.test)), None)
        if block is None:
            continue
        bodies = [
            block.body,
            *(_constructor(classes[called]) for called in _called(block) if called in classes),
        ]
        for module, line in (found for body in bodies for found in _imports(body)):
            yield name, _IMPORTED_BY.get(module, module), f"{path}:{line}"


def _is_asked_for(name: str, test: ast.expr) -> bool:
    """Return whether a condition is `"name" in backends`, alone or beside other names."""
    match test:
        case ast.Compare(left=ast.Constant(value=str(value)), ops=[ast.In()]):
            return value == name
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_is_asked_for(name, value) for value in values)
    return False


def _called(block: ast.If) -> list[str]:
    return [dotted(node.func) for part in block.body for node in walk(part) if isinstance(node, ast.Call)]


def _constructor(node: ast.ClassDef) -> list[ast.stmt]:
    return next(
        (part.body for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), []
    )


def _imports(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield the modules that these statements always import, with lines, except Python's and verl's own."""
    for node in body:
        match node:
            case ast.Import(names=aliases):
                modules = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                continue
        for module in modules:
            first = module.partition(".")[0]
            if first not in sys.stdlib_module_names and first != "verl":
                yield module, node.lineno
