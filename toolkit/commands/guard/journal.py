"""Repairs recorded in a journal: the files that must contain them, and how to restore a lost one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.change import NewFile, NewLink, ReplaceFile
from verl_doctor.toolkit.changes import journal, safe_write
from verl_doctor.toolkit.changes.journal_entries import entries_of
from verl_doctor.toolkit.changes.records import Entry, FileRecord
from verl_doctor.toolkit.commands.guard.agreement import AgreedFile, Bases
from verl_doctor.toolkit.commands.guard.files import Found, line_digest
from verl_doctor.toolkit.marker import Marker, marked_lines


def journalled(home: Path, bases: Bases, marker: Marker, since: str = "") -> Iterator[AgreedFile]:
    """Yield files of repairs in a journal, in place and newer than `since`, as the last repair left them.

    Raises Refused if the journal cannot be read.
    """
    last: dict[str, AgreedFile] = {}
    for entry in entries_of(home):
        if entry.state == "applied" and entry.time > since:
            for index, record in entry.files():
                if record.after is None:
                    last.pop(record.file, None)
                    continue
                after = journal.content(entry, index, "after") or b""
                marked = marked_lines(after.decode("utf-8", "replace"), marker, ())
                last[record.file] = AgreedFile(
                    place=bases.place(record.file),
                    why=entry.code,
                    sha256=record.after,
                    link=record.kind == "new_link",
                    marked=tuple(line_digest(line) for _, _, line in marked),
                )
    yield from last.values()


def from_journal(lost: Found, homes: Iterable[Path]) -> ReplaceFile | NewFile | NewLink | None:
    """Return the recorded change that restores a lost repair.

    The result is None if the file is not as it was before that repair.
    """
    for entry in (entry for home in homes for entry in reversed(entries_of(home))):
        for index, record in entry.files():
            places = (os.path.realpath(lost.path), os.path.realpath(lost.path.parent) + f"/{lost.path.name}")
            if record.after == lost.agreed.sha256 and record.file in places:
                return _again(entry, index, record, lost)
    return None


def _again(
    entry: Entry, index: int, record: FileRecord, lost: Found
) -> ReplaceFile | NewFile | NewLink | None:
    before, after = journal.content(entry, index, "before"), journal.content(entry, index, "after") or b""
    if record.kind == "private_copy":
        found = lost.path.read_bytes() if lost.state != "gone" else None
        back = found is not None and safe_write.sha256(found) == record.linked
        return ReplaceFile(lost.path, found or b"", after) if back else None
    if before is not None:
        return ReplaceFile(lost.path, before, after) if lost.path.read_bytes() == before else None
    if lost.state != "gone":
        return None
    if lost.agreed.link:
        return NewLink(lost.path, Path(os.fsdecode(after)))
    return NewFile(lost.path, after, int(record.mode, 8))
