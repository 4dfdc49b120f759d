"""Reads the transactions of a journal, which may be damaged or written by another user."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import dacite

from verl_doctor.toolkit.changes import safe_write
from verl_doctor.toolkit.changes.records import (
    BytecodeRecord,
    CommandRecord,
    Entry,
    FileRecord,
    FolderRecord,
    InstallRecord,
    Record,
    RemovalRecord,
    Run,
)
from verl_doctor.toolkit.system.errors import Refused, os_error_text
from verl_doctor.toolkit.system.ownership import next_step, why_any_not_ours

SCHEMA_VERSION: Final = 2
UNFINISHED: Final = "preparing"
"""The state of a transaction that is not written completely."""
_READ = (1, SCHEMA_VERSION)
_FOLDER = re.compile(r"(?P<number>[0-9]{4,18})-(?P<state>applying|applied|undoing|undone|failed|preparing)")
_LARGEST_ENTRY = 64 * 1024 * 1024
_LARGEST_ID = 2**32 - 2  # the next number would mean "do not change the owner"
_LATEST = 2**62 * 10**9  # nanoseconds that fit into 64 bits

T = TypeVar("T")

_KINDS: Mapping[str, type[Record]] = {
    "replace_file": FileRecord,
    "new_file": FileRecord,
    "removed_file": FileRecord,
    "new_link": FileRecord,
    "private_copy": FileRecord,
    "private_folder": FileRecord,
    "compile_bytecode": BytecodeRecord,
    "run_command": CommandRecord,
    "removal": RemovalRecord,
    "install_packages": InstallRecord,
}


def entries_of(home: Path, *, to_read: bool = False) -> tuple[Entry, ...]:
    """Return all transactions, oldest first.

    Raises Refused, naming the file, if one of them is invalid or could have been written by another user (see
    `demand_own`).
    """
    owner = demand_own(home, to_read=to_read)
    folders = sorted(
        (found for found in transaction_folders(home) if found["state"] != UNFINISHED),
        key=lambda found: int(found["number"]),
    )
    return tuple(
        _read_entry(home, int(found["number"]), found["state"], home / found.string, owner)
        for found in folders
    )


def demand_own(home: Path, *, to_read: bool = False) -> int:
    """Refuse a journal if another user could have written to its folder or to a transaction's.

    Returns a further trusted user: root, or for reading (`to_read`) the owner of the folder that contains the
    journal, to whom all of that belongs.
    """
    owner = home.parent.stat().st_uid if to_read and os.path.isdir(home) else 0
    folders = (home, *(home / found.string for found in transaction_folders(home)))
    if why := why_any_not_ours(folders, group_counts=True, trusted=owner):
        raise Refused(untrusted(home, why))
    return owner


def is_journal(home: Path) -> bool:
    """Return whether this folder is a transaction. Other folders are not ours and never touched."""
    try:
        return any(os.path.isfile(home / found.string / "entry.json") for found in transaction_folders(home))
    except OSError:
        return False


def transaction_folders(home: Path) -> list[re.Match[str]]:
    """Return the names of the transactions' folders, with their numbers and states."""
    try:
        names = [path.name for path in home.iterdir()]
    except FileNotFoundError:
        return []
    return [found for found in map(_FOLDER.fullmatch, names) if found]


def read_file(file: Path, owner: int, largest: int | None = None) -> bytes | None:
    """Return the content of a journal file, None if it is missing.

    Raises Refused if another user could have written it.
    """
    return safe_write.read(file, largest, owner=owner)


def _read_entry(home: Path, number: int, state: Any, folder: Path, owner: int) -> Entry:
    file = folder / "entry.json"
    try:
        text = read_file(file, owner, _LARGEST_ENTRY)
        if text is None:
            raise Refused(_unreadable(file, "it is missing"))
        document = json.loads(text)
        if document["schema_version"] not in _READ or isinstance(document["schema_version"], bool):
            raise Refused(
                f"{file} was written by another version of verl-doctor (schema "
                f"{document['schema_version']!r:.20}, this one reads {' and '.join(map(str, _READ))}); "
                "use that version to undo it"
            )
        changes = tuple(_read_record(raw) for raw in document["changes"])
        texts = {name: _text(document[name]) for name in ("time", "fix", "code", "token")}
        run = _record(Run, document.get("run", {}))
        around = tuple(_read_folder(folder) for folder in document.get("around", []))
    except OSError as error:
        raise Refused(_unreadable(file, os_error_text(error))) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, dacite.DaciteError) as error:
        raise Refused(_unreadable(file, f"{type(error).__name__}: {str(error)[:100]}")) from None
    if not re.fullmatch(r"[0-9a-f]{8}", texts["token"]):
        raise Refused(_unreadable(file, "its token is invalid"))
    return Entry(home, number, state, changes=changes, run=run, around=around, owner=owner, **texts)


def _record(kind: type[T], raw: Any) -> T:
    return dacite.from_dict(kind, raw, dacite.Config(cast=[tuple], strict=True))


def _read_record(raw: dict[str, Any]) -> Record:
    record: Record = _record(_KINDS[raw["kind"]], raw)
    paths: tuple[str, ...] = ()
    if isinstance(record, FileRecord):
        _within(int(record.mode, 8), 0, 0o7777)
        if (record.after is None) is not (record.kind == "removed_file"):
            raise ValueError(f"{record.kind} with {'no content' if record.after is None else 'a content'}")
        _within(record.uid, 0, _LARGEST_ID)
        _within(record.gid, 0, _LARGEST_ID)
        _timed(record.atime, record.mtime)
        paths = (record.path, record.file, *record.folders)
    elif isinstance(record, BytecodeRecord):
        paths = (record.python, *record.roots)
    elif isinstance(record, InstallRecord):
        paths = (record.environment, record.copy)
    for path in paths:
        if not Path(path).is_absolute() or b"\0" in os.fsencode(path):  # UnicodeEncodeError is a ValueError
            raise ValueError(f"{path!r:.80} is not an absolute path")
    return record


def _read_folder(raw: Any) -> FolderRecord:
    record = _record(FolderRecord, raw)
    _timed(record.atime, record.mtime)
    return record


def _timed(*times: int | None) -> None:
    for time in times:
        _within(time or 0, -_LATEST, _LATEST)


def _within(number: int, least: int, most: int) -> None:
    """Raise ValueError for a number that the operating system would reject."""
    if not least <= number <= most:
        raise ValueError(f"{number!r:.40} is not between {least} and {most}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not text")
    return value


def untrusted(home: Path, why: str) -> str:
    """Return the sentence that refuses a journal."""
    step = next_step(home, *(home / found.string for found in transaction_folders(home)))
    return f"the journal {home} is not trusted, because another user could have written it: {why}; {step}"


def _unreadable(file: Path, why: str) -> str:
    return (
        f"the journal's {file} is invalid ({why}); nothing was changed. Its folder contains the "
        "original bytes as *.before; move it elsewhere to continue without it"
    )
