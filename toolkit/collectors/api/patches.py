"""Names that the examined code replaces in another package.

It does so with `patch("package.Class.method", ...)` or `Class.method = f`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.source import walk

_PATCH = ("unittest.mock.patch", "mock.patch")
_PATCH_OBJECT = ("unittest.mock.patch.object", "mock.patch.object")
At = tuple[int, int]


def paths_patched(node: ast.Call, reader: ValueReader, scope: Scope) -> Iterator[tuple[str, At]]:
    """Yield the dotted paths that a call of `mock.patch` replaces, each with the place where it is written.

    A path may be a literal, a variable, or come from a loop over a table: `for path, new in TABLE:
    patch(path, new)`.
    """
    if not node.args or reader.callee(node, scope) not in _PATCH or _creates(node):
        return
    given = node.args[0]
    text = reader.value(given, scope)
    if isinstance(text, str):
        yield text, (given.lineno, given.col_offset)
    elif isinstance(given, ast.Name):
        yield from _from_table(given.id, scope)


def attribute_patched(node: ast.Call, reader: ValueReader, scope: Scope) -> tuple[ast.expr, str] | None:
    """Return the owner and name that `patch.object(owner, "name")` replaces."""
    if len(node.args) < 2 or reader.callee(node, scope) not in _PATCH_OBJECT or _creates(node):
        return None
    name = reader.value(node.args[1], scope)
    return (node.args[0], name) if isinstance(name, str) else None


def _creates(node: ast.Call) -> bool:
    """Return whether the call has `create=True`, so that the name need not exist."""
    return any(keyword.arg == "create" for keyword in node.keywords)


def _from_table(name: str, scope: Scope) -> Iterator[tuple[str, At]]:
    """Yield the strings that a loop variable takes, if the loop runs over a literal list of rows."""
    home = scope.find(name)
    for entry in home[1] if home is not None else ():
        match entry.loop:
            case (ast.Tuple(elts=columns), ast.Name(id=table)):
                index = next(
                    (at for at, part in enumerate(columns) if isinstance(part, ast.Name) and part.id == name),
                    None,
                )
                held = scope.find(table)
                for row in _rows([made.expression for made in held[1]] if held is not None else []):
                    if index is not None and index < len(row):
                        cell = row[index]
                        if isinstance(cell, ast.Constant) and isinstance(cell.value, str):
                            yield cell.value, (cell.lineno, cell.col_offset)


def _rows(tables: list[ast.expr | None]) -> Iterator[list[ast.expr]]:
    for table in tables:
        if isinstance(table, (ast.List, ast.Tuple)):
            yield from (row.elts for row in table.elts if isinstance(row, (ast.Tuple, ast.List)))


def functions_put(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the inner functions of a function that it only puts in place of others, each with that place.

    It stores them as attributes, or hands them on with an owner and a name: `setattr(Class, "method",
    inner)`.
    """
    inner = {
        part.name for part in walk(node) if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
    } - {node.name}
    loads = [part for part in walk(node) if isinstance(part, ast.Name) and part.id in inner]
    places: dict[str, list[ast.expr]] = {}
    for part in walk(node) if inner else ():
        match part:
            case ast.Assign(targets=[ast.Attribute() as place], value=ast.Name(id=name)) if name in inner:
                places.setdefault(name, []).append(place)
            case ast.Call(
                args=[
                    ast.Name() | ast.Attribute() as owner,
                    ast.Constant(value=str(attribute)),
                    ast.Name(id=name),
                ]
            ) if name in inner:
                place = ast.copy_location(ast.Attribute(owner, attribute, ast.Load()), part)
                places.setdefault(name, []).append(place)
    for name, found in places.items():
        if len(found) == sum(load.id == name for load in loads):
            yield name, found[0]
