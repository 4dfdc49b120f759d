"""The journal's record of an irreversible clean-up: what was removed, why it was allowed, and the result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.changes import journal
from verl_doctor.toolkit.changes.records import Entry, Planned, RemovalRecord
from verl_doctor.toolkit.leftover import Leftover, Outcome

_OUTCOME = "outcome.json"
_FIX, _CODE = "clean", "LEFT"


def begin(home: Path, leftovers: Sequence[Leftover]) -> Entry:
    """Record what will be removed. Raises Refused and OSError."""
    records = [
        RemovalRecord("removal", leftover.kind, leftover.name, leftover.proof, leftover.size)
        for leftover in leftovers
    ]
    return journal.begin(home, _FIX, _CODE, [Planned(record, {}) for record in records])


def note(entry: Entry, index: int, outcome: Outcome) -> None:
    """Record the result for one item. Raises OSError."""
    content = {"state": outcome.state, "why": outcome.why}
    journal.note(entry, index, _OUTCOME, json.dumps(content).encode("ascii"))


def outcome_text(entry: Entry, index: int) -> str:
    """Return the recorded result for one item as text."""
    content = journal.noted(entry, index, _OUTCOME)
    if content is None:
        return "its removal was not completed"
    try:
        recorded = json.loads(content)
        return f"{recorded['state']} ({recorded['why']})" if recorded["why"] else str(recorded["state"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "its result cannot be read"
