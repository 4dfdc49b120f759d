"""A table of releases, and what an upgrade would break, as JSON documents. `data/matrix.schema.json` describes them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit.commands.matrix.matrix import Row, Side, Table
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade
from verl_doctor.toolkit.commands.matrix.sentences import headline, upgrade_headline

SCHEMA_VERSION = 1


def table_document(table: Table) -> dict[str, Any]:
    """Return the document about a table."""
    best = table.best
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "matrix",
        "subject": table.subject,
        "other": _side(table.other),
        "python": table.python,
        "releases_offered": table.offered,
        "index_read": table.taken or None,
        "index_silent": list(table.silent),
        "recommended": best.version if best is not None and best.fits else None,
        "nearest": best.version if best is not None else None,
        "said": headline(table)[1],
        "rows": [_row(row) for row in table.rows],
    }


def upgrade_document(upgrade: Upgrade | None) -> dict[str, Any]:
    """Return the document about an upgrade; empty if there is no newer release."""
    if upgrade is None:
        return {"schema_version": SCHEMA_VERSION, "kind": "next", "next": None}
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "next",
        "verl": _side(upgrade.verl),
        "now": _side(upgrade.now),
        "said": upgrade_headline(upgrade)[1],
        "breaks": [_plain(breakage) for breakage in upgrade.breaks],
        "may_break": [_plain(breakage) for breakage in upgrade.may_break],
        "mends": [_plain(mend) for mend in upgrade.mends],
        "paths_now": [asdict(path) for path in upgrade.before.paths],
        "next": _row(upgrade.row),
        "newer_verl": [_row(row) for row in upgrade.verls],
    }


def _side(side: Side) -> dict[str, str]:
    return {
        "project": side.project,
        "version": side.version,
        "folder": side.tree.folder,
        "found_in": side.tree.found_in,
    }


def _row(row: Row) -> dict[str, Any]:
    verdict = row.verdict
    return {
        "project": row.project,
        "version": row.version,
        "installed": row.installed,
        "starts": row.starts,
        "fits": row.fits,
        "paths": [asdict(path) for path in verdict.paths] if verdict else [],
        "reason": row.unread or (verdict.reason if verdict else ""),
        "breaks": [_plain(breakage) for breakage in verdict.stopping] if verdict else [],
        "optional": [_plain(breakage) for breakage in verdict.optional] if verdict else [],
        "pinned": row.pinned,
        "pins": [asdict(pin) for pin in row.pins],
        "environment": [asdict(objection) for objection in row.environment],
        "exchanged": [asdict(objection) for objection in row.exchanged],
        "clashes": [asdict(clash) for clash in row.clashes],
        "unclear": list(row.unclear),
    }


def _plain(value: Any) -> dict[str, Any]:
    """Convert a dataclass to JSON types, with lists for tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(value).items()}
