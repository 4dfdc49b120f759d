"""Finds a statement again by its syntax tree, in a source whose lines, comments and formatting may differ."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Nodes and fields that describe how code is written or used, not what it does.
_SILENT = frozenset({"ctx", "kind", "type_comment"})
_BLOCKS = ("body", "orelse", "finalbody")
Step = str | int


@dataclass(frozen=True)
class Place:
    """Consecutive statements of a block, and the enclosing function or class (`Class.method`, "" if none)."""

    scope: str
    statements: tuple[ast.stmt, ...]

    @property
    def line(self) -> int:
        """The line where the first statement begins."""
        return self.statements[0].lineno


def digest(node: ast.AST) -> str:
    """Return a digest of a syntax tree without positions and comments, the same in every Python version."""
    return hashlib.sha256(_shape(node).encode("utf-8", "surrogatepass")).hexdigest()


def _shape(value: object) -> str:
    """Return a syntax tree as text. Empty fields are left out: newer Python versions have more of them."""
    if isinstance(value, ast.AST):
        fields = ((name, part) for name, part in ast.iter_fields(value) if name not in _SILENT)
        parts = (f"{name}={_shape(part)}" for name, part in fields if part is not None and part != [])
        return f"{type(value).__name__}({','.join(parts)})"
    if isinstance(value, list):
        return f"[{','.join(map(_shape, value))}]"
    return f"{type(value).__name__}:{value!r}"


def blocks(node: ast.AST, scope: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield every block of statements below a node, with its scope."""
    for name in _BLOCKS:
        statements = getattr(node, name, None)
        if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
            yield scope, statements
            for statement in statements:
                inner = isinstance(statement, _Definition)
                named = (
                    f"{scope}.{statement.name}".lstrip(".") if isinstance(statement, _Definition) else scope
                )
                yield from blocks(statement, named if inner else scope)
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield from blocks(part, scope)


def matches(tree: ast.Module, scope: str, digests: Sequence[str]) -> list[Place]:
    """Return the places in this scope where consecutive statements have these syntax trees."""
    found: list[Place] = []
    for around, statements in blocks(tree):
        known = [digest(statement) for statement in statements] if around == scope else []
        found += (
            Place(scope, tuple(statements[start : start + len(digests)]))
            for start in range(len(known) - len(digests) + 1)
            if known[start : start + len(digests)] == list(digests)
        )
    return found


def enclosing(tree: ast.Module, first: int, last: int) -> Place | None:
    """Return the fewest consecutive statements of a block that cover these lines (from 1, inclusive)."""
    found = None
    for scope, statements in blocks(tree):
        inside = [
            statement
            for statement in statements
            if statement.lineno <= last and first <= (statement.end_lineno or statement.lineno)
        ]
        if inside and _begin(inside[0]) <= first and last <= (inside[-1].end_lineno or 0):
            found = Place(scope, tuple(inside))  # blocks come after those around them
    return found


def _begin(statement: ast.stmt) -> int:
    decorators = statement.decorator_list if isinstance(statement, _Definition) else []
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def steps_to(root: ast.AST, wanted: ast.AST) -> tuple[Step, ...] | None:
    """Return the fields and indexes on the path from a node to one below it."""
    if root is wanted:
        return ()
    for name, value in ast.iter_fields(root):
        for index, part in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(part, ast.AST) and (rest := steps_to(part, wanted)) is not None:
                return (name, *(() if index is None else (index,)), *rest)
    return None


def follow(root: ast.AST, steps: Sequence[Step]) -> ast.AST | None:
    """Return the node at this path of fields and indexes, None when it does not exist."""
    value: object = root
    for step in steps:
        if isinstance(step, str):
            value = getattr(value, step, None)
        else:
            value = value[step] if isinstance(value, list) and 0 <= step < len(value) else None
    return value if isinstance(value, ast.AST) else None
