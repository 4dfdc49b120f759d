"""Whether an import, or a block of imports, succeeds with the examined packages."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.answers import Missing, Present
from verl_doctor.toolkit.sources.python.summary import absolute


def block_fails(body: Iterable[ast.stmt], reader: ValueReader) -> bool | None:
    """Return whether a block fails at an import; None if unknown."""
    certain = True
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            importable = import_succeeds(node, reader)
            if importable is False:
                return True
            certain = certain and importable is True
        elif not is_harmless(node):
            certain = False
    return False if certain else None


def import_succeeds(node: ast.Import | ast.ImportFrom, reader: ValueReader) -> bool | None:
    """Return whether an import of the examined packages succeeds. Nothing is known of other packages."""
    sources = reader.sources
    source = absolute(node, reader.module.package) if isinstance(node, ast.ImportFrom) else ""
    wanted = (
        [(source, alias.name) for alias in node.names]
        if source
        else [(alias.name, "") for alias in node.names]
    )
    found: list[bool | None] = []
    for module, name in wanted:
        own = sources.own_name(module)
        if own is None or own.partition(".")[0] not in reader.versions or name == "*":
            found.append(None)
            continue
        answer = sources.import_name(module, name) if name else sources.import_module(module)
        found.append(True if isinstance(answer, Present) else False if isinstance(answer, Missing) else None)
    return False if False in found else None if None in found else True


def is_harmless(node: ast.stmt) -> bool:
    """Return whether a statement cannot fail: the assignment of a constant, `pass`, or a docstring."""
    match node:
        case (
            ast.Pass()
            | ast.Expr(value=ast.Constant())
            | ast.Assign(targets=[ast.Name()], value=ast.Constant())
        ):
            return True
    return False
