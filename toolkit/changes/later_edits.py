"""Files that were edited after a change: undoes the lines of the change and keeps the later edits."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

from verl_doctor.toolkit.changes import files, journal, safe_write
from verl_doctor.toolkit.changes.records import Entry, FileRecord, Side
from verl_doctor.toolkit.system.errors import Refused

_SIDES: Mapping[Side, tuple[Side, Side]] = {"before": ("after", "before"), "after": ("before", "after")}
_Hunk = tuple[int, int, list[bytes]]


def both(start: bytes, end: bytes, edited: bytes) -> bytes | None:
    """Return `edited`, which was made from `start`, with the lines changed as from `start` to `end`.

    None if some of these lines were edited too.
    """
    lines = start.splitlines(keepends=True)
    ours, theirs = _hunks(lines, end), _hunks(lines, edited)
    if any(_collide(hunk, edit) for hunk in ours for edit in theirs if hunk != edit):
        return None
    merged: list[bytes] = []
    place = 0
    for first, last, new in sorted([*theirs, *(hunk for hunk in ours if hunk not in theirs)], key=_order):
        merged += [*lines[place:first], *new]
        place = last
    merged += lines[place:]
    # An edit may have removed the end of the last line, after which the change puts more.
    return b"".join(merged) if all(line.endswith((b"\n", b"\r")) for line in merged[:-1]) else None


def _hunks(lines: list[bytes], content: bytes) -> list[_Hunk]:
    """Return what was replaced: the range of lines, and the new lines."""
    new = content.splitlines(keepends=True)
    codes = difflib.SequenceMatcher(None, lines, new, autojunk=False).get_opcodes()
    return [(i1, i2, new[j1:j2]) for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def _order(hunk: _Hunk) -> tuple[int, int]:
    return hunk[0], hunk[1]


def _collide(hunk: _Hunk, edit: _Hunk) -> bool:
    """Return whether two ranges share a line, or insert at the same place or within each other."""
    (start, end, _), (first, last, _) = hunk, edit
    if start == end and first == last:
        return start == first
    return max(start, first) < min(end, last) or first < start == end < last or start < first == last < end


def foresee(
    entry: Entry, contents: MutableMapping[str, bytes | None]
) -> Iterator[tuple[int, FileRecord, bytes | None]]:
    """Yield the files in which a transaction cannot be undone beside later edits.

    Each comes with what it will contain by then, None for what it contains now. `contents` holds that, None
    for a file that will be gone; what files will contain afterwards is added. Raises OSError and Refused.
    """
    for index, record in entry.files():
        is_foreseen, foreseen = record.file in contents, contents.get(record.file)
        side = files.side_of(record, foreseen) if is_foreseen else files.state(record)
        restored = (
            merged(entry, index, record, "before", foreseen)
            if side == "other"
            else journal.content(entry, index, "before")
        )
        if side == "other" and restored is None:
            yield index, record, foreseen
        else:
            contents[record.file] = restored


def merged(
    entry: Entry, index: int, record: FileRecord, side: Side, content: bytes | None = None
) -> bytes | None:
    """Return what a file will have on this side of its change, with its later edits.

    None if these cannot be combined. `content` is what the file has, by default what it has now.
    """
    if record.kind != "replace_file":
        return None
    found = _read(record) if content is None else content
    start, end = (journal.content(entry, index, name) for name in _SIDES[side])
    return None if start is None or end is None or found is None else both(start, end, found)


def _read(record: FileRecord) -> bytes | None:
    try:
        return safe_write.read(Path(record.file))
    except Refused:
        return None


def why_not(entry: Entry, index: int, record: FileRecord, content: bytes | None = None) -> str:
    """Describe the later edits of a file that touch what the repair changed. Raises Refused and OSError.

    `content` is what the file will contain when newer repairs are undone, None for what it contains now.
    """
    shown = files.changed_since(entry, index, record, content)
    if record.kind != "replace_file" or _read(record) is None:
        return shown
    return (
        f"{shown}These edits touch lines that the repair changed: undo these by hand; the original is "
        f"{entry.at(index, 'before')}"
    )


def advice(entry: Entry, *, alone: bool) -> str:
    """Return the command that undoes a transaction beside later edits, "" if it would undo nothing."""
    if alone and next(foresee(entry, {}), None) is not None:
        return ""
    name = shlex.quote(f"{entry.home}/{entry.id}")
    return f"To keep these edits and undo what they do not touch: verl-doctor undo {name} --keep-edits"
