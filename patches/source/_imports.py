"""Shared by fixes of imports: a name comes from where verl expects it, or if that fails, elsewhere.

The old place is tried first, so nothing changes for releases with which the file worked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from verl_doctor.patches.shared.edited_files import edited_sources
from verl_doctor.toolkit.change import Change, Refusal
from verl_doctor.toolkit.collectors.api.uses import ApiUse
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import walk

Successor = Callable[[ApiUse, ast.Module, str], tuple[str, str]]
"""Returns the present module and name of a use, given the local name to which the file binds it.

May raise CannotEdit.
"""


def replaced_imports(
    finding: Finding, uses: Iterable[ApiUse], sources: SourceFiles, comment: str, successor: Successor
) -> list[Change] | Refusal:
    """Repair each import statement that a finding names, for all of its names that are missing.

    If one statement has an unsupported form, the whole finding is refused.
    """
    places: dict[str, set[int | None]] = {}
    for place in (finding.location, *finding.also):
        if place is not None:
            places.setdefault(place.path, set()).add(place.line)
    broken = [use for use in uses if use.breaks and use.kind == "import"]

    def imported_from_elsewhere(source: SourceText) -> bytes:
        missing = [use for use in broken if use.path == source.path]
        statements = _statements(source, [use for use in missing if use.line in places[source.path]])
        return source.edited([_edit(source, node, missing, successor) for node in statements], comment)

    return edited_sources(sorted(places), sources, imported_from_elsewhere)


def _statements(source: SourceText, wanted: Iterable[ApiUse]) -> list[ast.ImportFrom]:
    """Return the statements with these imports, in the order of the file."""
    found = {}
    known = {
        (alias.lineno, alias.col_offset): node
        for node in walk(source.tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    for use in wanted:
        node = known.get((use.line, use.column))
        if node is None:
            raise CannotEdit(f"{source.path}:{use.line}: no import statement here")
        if isinstance(node, ast.Import):
            raise CannotEdit(f"{source.path}:{use.line}: it imports a whole module, which does not exist")
        found[node.lineno, node.col_offset] = node
    return [found[key] for key in sorted(found)]


def _edit(source: SourceText, node: ast.ImportFrom, missing: Iterable[ApiUse], successor: Successor) -> Edit:
    """Replace one import statement. Raises CannotEdit, with the line, for an unsupported form."""
    where = f"{source.path}:{node.lineno}"
    places = {(use.line, use.column): use for use in missing}
    if node.level:
        raise CannotEdit(f"{where}: a relative import is not repaired automatically")
    if not source.is_alone(node):
        raise CannotEdit(f"{where}: the import shares its line with other code")
    staying, tried = [], []
    for alias in node.names:
        use = places.get((alias.lineno, alias.col_offset))
        if use is None:
            staying.append(_alias_text(alias.name, alias.asname))
            continue
        local = alias.asname or alias.name
        try:
            module, name = successor(use, source.tree, local)
        except CannotEdit as reason:
            raise CannotEdit(f"{where}: {reason}") from None
        tried.append(
            f"try:\n    from {node.module} import {_alias_text(alias.name, alias.asname)}\n"
            f"except ImportError:\n    from {module} import {_alias_text(name, local)}"
        )
    first = [_import(str(node.module), staying, wide=node.lineno != node.end_lineno)] if staying else []
    return Edit(source.start(node), source.end(node), source.indented("\n".join([*first, *tried]), node))


def _import(module: str, names: list[str], *, wide: bool) -> str:
    if not wide:
        return f"from {module} import {', '.join(names)}"
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _alias_text(name: str, local: str | None) -> str:
    return name if local in {None, name} else f"{name} as {local}"
