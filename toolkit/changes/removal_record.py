"""The record of a clean-up in the journal. It cannot be undone; it says what was removed, why that was allowed, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.changes import journal
from verl_doctor.toolkit.changes.journal import Entry, Planned, RemovalRecord
from verl_doctor.toolkit.leftover import Leftover, Outcome

_OUTCOME = "outcome.json"
_FIX, _CODE = "clean", "LEFT"


def begin(home: Path, leftovers: Sequence[Leftover]) -> Entry:
    """Write down what is going to be removed. Raises Refused and OSError."""
    records = [RemovalRecord("removal", one.kind, one.name, one.proof, one.size) for one in leftovers]
    return journal.begin(home, _FIX, _CODE, [Planned(record, {}) for record in records])


def note(entry: Entry, index: int, outcome: Outcome) -> None:
    """Write down what became of one of them. Raises OSError."""
    said = {"state": outcome.state, "why": outcome.why}
    journal.note(entry, index, _OUTCOME, json.dumps(said).encode("ascii"))


def told(entry: Entry, index: int) -> str:
    """What became of one of them, as far as it was written down."""
    content = journal.noted(entry, index, _OUTCOME)
    if content is None:
        return "its removal was not completed"
    try:
        said = json.loads(content)
        return f"{said['state']} ({said['why']})" if said["why"] else str(said["state"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "what became of it cannot be read"
