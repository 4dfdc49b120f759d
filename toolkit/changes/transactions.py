"""The transactions of a journal, and the state of their changes."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.changes import bytecode, command, files, installation, journal, lock, removal_record
from verl_doctor.toolkit.changes.bytecode import Remaining
from verl_doctor.toolkit.changes.journal_entries import demand_own, entries_of
from verl_doctor.toolkit.changes.records import (
    BytecodeRecord,
    CommandRecord,
    Entry,
    FileRecord,
    InstallRecord,
    Record,
    RemovalRecord,
    Run,
)
from verl_doctor.toolkit.changes.sentences import sentences
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.text import counted

State = Literal["applied", "undone", "failed", "interrupted", "in progress"]
Standing = Literal[
    "in place",
    "partly in place",
    "changed again",
    "edited since",
    "restored",
    "restored, later edits kept",
    "cannot be undone",
]
"""The state of a change."""

LOST: frozenset[Standing] = frozenset({"restored", "edited since", "partly in place"})
"""States of changes in an applied transaction that no longer are as they were made."""

EDITED = "edited"
"""The note about a file that stayed as it had been edited when its interrupted transaction was settled."""

MERGED = "merged"
"""The note about a file in which a change was undone beside later edits."""

_DONE = {
    "replace_file": "replaced",
    "new_file": "made",
    "removed_file": "removed",
    "new_link": "made the link",
    "private_copy": "replaced the link",
    "private_folder": "made a folder of links of the link",
}


@dataclass(frozen=True)
class Changed:
    """One change of a transaction: what changed, where, and whether it is still in place.

    `paths` are the files or folders that it changed, none for a command. `newer` is the transaction that
    changed it again.
    """

    kind: str
    path: str
    description: str
    standing: Standing
    paths: tuple[str, ...] = ()
    newer: str = ""

    @property
    def now(self) -> str:
        """Its state as text."""
        return f"changed again by {self.newer}" if self.standing == "changed again" else self.standing


@dataclass(frozen=True)
class Transaction:
    """Changes that were made together.

    `time` is UTC in ISO 8601, `fix` and `code` are the reason, `folder` contains the originals.

    `run` identifies the other transactions, in any journal, of the same run of the doctor.
    """

    id: str
    time: str
    fix: str
    code: str
    state: State
    changes: tuple[Changed, ...]
    folder: Path
    run: Run = field(default_factory=Run)


def history(home: Path) -> tuple[Transaction, ...]:
    """Return all transactions of a journal, oldest first.

    Writes nothing. Raises Refused if the journal is damaged.
    """
    with sentences(f"{home} could not be read"):
        demand_own(home, to_read=True)
        holder = lock.holder(home)
        entries = _settled_entries(home)
        return tuple(transaction(entry, entries, holder) for entry in entries)


def changed_again(entry: Entry, record: FileRecord, entries: Sequence[Entry]) -> str | None:
    """Return the newest later transaction in effect that changed the file or one in its private folder."""
    later = (other for other in reversed(entries) if other.number > entry.number and other.state == "applied")
    places = {record.file, *(record.folders if record.kind == "private_folder" else ())}
    return next((o.id for o in later if any(_reaches(theirs, places) for _, theirs in o.files())), None)


def _reaches(record: FileRecord, places: Collection[str]) -> bool:
    return record.file in places or os.path.dirname(record.file) in places  # noqa: PTH120 - a text like them


def _settled_entries(home: Path) -> tuple[Entry, ...]:
    """Read the journal without its lock.

    A state that changes meanwhile is not damage: the read is repeated.
    """
    for _ in range(5):
        names = sorted(home.iterdir()) if os.path.isdir(home) else []
        try:
            return entries_of(home, to_read=True)
        except Refused:
            if names == sorted(home.iterdir()):
                raise
    return entries_of(home, to_read=True)


def transaction(entry: Entry, entries: Sequence[Entry], holder: str | None) -> Transaction:
    """Return a journal entry as a transaction; `holder` is the process that holds the journal's lock."""
    state: State
    match entry.state:
        case "applying" | "undoing":
            state = "in progress" if holder else "interrupted"
        case settled:
            state = settled
    changes = tuple(_changed(entry, index, record, entries) for index, record in enumerate(entry.changes))
    return Transaction(entry.id, entry.time, entry.fix, entry.code, state, changes, entry.folder, entry.run)


def _changed(entry: Entry, index: int, record: Record, entries: Sequence[Entry]) -> Changed:
    match record:
        case FileRecord(kind, path, file):
            standing, newer = _file_now(entry, index, record, entries)
            return Changed(kind, path, f"{_DONE[kind]} {path}", standing, (file,), newer)
        case BytecodeRecord(kind, _, roots):
            state, now = _bytecode_now(entry, bytecode.remaining(entry, index, record))
            return Changed(kind, ", ".join(roots), state, now, tuple(roots))
        case CommandRecord(kind):
            return Changed(
                kind,
                record.argv[0] if record.argv else "",
                f"ran {command.command_line(record)}",
                "cannot be undone",
            )
        case InstallRecord(kind):
            in_place = entry.state not in {"undone", "failed"} and installation.is_there(entry, index, record)
            standing = "in place" if in_place else "restored"
            return Changed(kind, record.copy, installation.description(record), standing, (record.copy,))
        case RemovalRecord(kind, what, name):
            outcome = removal_record.outcome_text(entry, index)
            return Changed(kind, name, f"{what} {name}: {outcome}", "cannot be undone")


def _bytecode_now(entry: Entry, caches: Remaining) -> tuple[str, Standing]:
    """Return what was done and what remains.

    After an interruption, the origin of an existing cache is unknown.
    """
    if caches.written is None:
        done = f"was interrupted while writing {counted(caches.meant, 'bytecode cache')}"
        total = caches.meant
    else:
        done, total = f"wrote {counted(caches.written, 'bytecode cache')}", caches.written
    if entry.state in {"undone", "failed"}:
        return done, "restored"
    now: Standing = (
        "restored" if not caches.existing else "in place" if caches.existing == total else "partly in place"
    )
    return f"{done}, {caches.existing} {'exists' if caches.existing == 1 else 'exist'} now", now


def _file_now(entry: Entry, index: int, record: FileRecord, entries: Sequence[Entry]) -> tuple[Standing, str]:
    """Return the state of a file, and the transaction that changed it again."""
    if entry.state in {"undone", "failed"}:
        if journal.noted(entry, index, MERGED) is not None:
            return "restored, later edits kept", ""
        return "edited since" if journal.noted(entry, index, EDITED) is not None else "restored", ""
    if newer := changed_again(entry, record, entries):
        return "changed again", newer
    match files.state(record):
        case "after":
            return "in place", ""
        case "before":
            return "restored", ""
        case "other":
            return "edited since", ""
