"""What verl-doctor itself changed in this environment, according to its journals."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.changes.journal_entries import entries_of
from verl_doctor.toolkit.changes.records import Entry
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Target, journal_homes


@dataclass(frozen=True)
class ChangedFile:
    """A file that a transaction wrote: its path, and the SHA-256 of the content."""

    path: str
    after: str


@dataclass(frozen=True)
class JournalEntry:
    """One transaction.

    `time` is UTC in ISO 8601, `fix` and `code` identify the repair, `state` is its outcome.
    """

    id: str
    time: str
    fix: str
    code: str
    state: str
    files: tuple[ChangedFile, ...]


@dataclass(frozen=True)
class JournalHistory:
    """All transactions in the environment's and the user's journal, each oldest first."""

    entries: tuple[JournalEntry, ...] = ()

    def author(self, path: str, sha256: str) -> JournalEntry | None:
        """Return the transaction that gave a file exactly this content and was not undone."""
        for entry in reversed(self.entries):
            if entry.state != "undone" and ChangedFile(path, sha256) in entry.files:
                return entry
        return None


@collector(kept=True)
def journal_history(target: Target) -> JournalHistory | Unknown:
    """Read both journals. A missing journal is an empty one."""
    try:
        found = [_entry(entry) for home in dict.fromkeys(journal_homes(target)) for entry in entries_of(home)]
    except (Refused, OSError) as error:
        return Unknown(f"what verl-doctor changed here cannot be read: {error}")
    return JournalHistory(tuple(found))


def _entry(entry: Entry) -> JournalEntry:
    files = tuple(
        ChangedFile(path, record.after)
        for _, record in entry.files()
        if record.after is not None
        for path in dict.fromkeys((record.path, record.file))
    )
    return JournalEntry(entry.id, entry.time, entry.fix, entry.code, entry.state, files)
