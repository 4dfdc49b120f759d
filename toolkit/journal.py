"""The journal: a folder for each transaction, from which every file can be given back after a crash or a week later.

    .verl-doctor/
        0001-applied/       the number is the transaction's id, the rest its state
            entry.json      what was to be done; never rewritten
            0.before        the original bytes of change 0 (absent when the file was new)
            0.after         the bytes that replaced them

A state changes by renaming the folder: one atomic step, which a full disk cannot prevent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import dacite

from verl_doctor.toolkit import safe_write
from verl_doctor.toolkit.refused import Refused, said_by

SCHEMA_VERSION = 1
State = Literal["applying", "applied", "undoing", "undone", "failed"]
Side = Literal["before", "after"]

_FOLDER = re.compile(r"(?P<number>[0-9]{4,18})-(?P<state>applying|applied|undoing|undone|failed|preparing)")
_UNFINISHED = "preparing"
_LARGEST_ENTRY = 64 * 1024 * 1024


@dataclass(frozen=True)
class FileRecord:
    """A file that was replaced or made, or a link that was made: its content is then where it leads.

    `before` and `after` are SHA-256, `before` is None for what is new. `path` is what the plan named, `file` where its links led; `folders` are those that had to be made, outermost
    first; `mode` is octal.
    """

    kind: Literal["replace_file", "new_file", "new_link"]
    path: str
    file: str
    before: str | None
    after: str
    mode: str
    uid: int
    gid: int
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class BytecodeRecord:
    """Bytecode caches that were written below `roots`, all of interpreters with the cache tag `tag`."""

    kind: Literal["compile_bytecode"]
    python: str
    roots: tuple[str, ...]
    tag: str


@dataclass(frozen=True)
class CommandRecord:
    """A command that was run."""

    kind: Literal["run_command"]
    argv: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class RemovalRecord:
    """A leftover of a dead job that was to be removed, and what proved that nobody needs it. `size` is in bytes."""

    kind: Literal["removal"]
    what: str
    name: str
    proof: tuple[str, ...]
    size: int | None = None


Record = FileRecord | BytecodeRecord | CommandRecord | RemovalRecord

_KINDS: Mapping[str, type[Record]] = {
    "replace_file": FileRecord,
    "new_file": FileRecord,
    "new_link": FileRecord,
    "compile_bytecode": BytecodeRecord,
    "run_command": CommandRecord,
    "removal": RemovalRecord,
}


@dataclass(frozen=True)
class Planned:
    """A record with the contents that it speaks of, before it is written down."""

    record: Record
    contents: Mapping[Side, bytes]


@dataclass(frozen=True)
class Entry:
    """One transaction as the journal knows it. `token` makes the names of its temporary files its own."""

    home: Path
    number: int
    state: State
    time: str
    fix: str
    code: str
    token: str
    changes: tuple[Record, ...]

    @property
    def id(self) -> str:
        """How a person names the transaction."""
        return f"{self.number:04}"

    @property
    def folder(self) -> Path:
        """Where its files are now."""
        return self.home / f"{self.id}-{self.state}"

    def at(self, index: int, what: str) -> Path:
        """The file that holds `what` of the change number `index`."""
        return self.folder / f"{index}.{what}"

    def files(self) -> list[tuple[int, FileRecord]]:
        """Its changed files, with their numbers."""
        return [(index, r) for index, r in enumerate(self.changes) if isinstance(r, FileRecord)]


def open_home(home: Path) -> None:
    """Make the journal's folder if there is none. Raises OSError."""
    missing = [folder for folder in (home, *home.parents) if not os.path.exists(folder)]
    for folder in reversed(missing):
        safe_write.make_folder(folder)


def begin(home: Path, fix: str, code: str, plan: Sequence[Planned]) -> Entry:
    """Write a transaction down, through to the disk, before anything is changed. Raises OSError.

    It comes into being by the last step, a rename: what a crash leaves before it is swept by `tidy`.
    """
    number = 1 + max((int(found["number"]) for found in _folders(home)), default=0)
    # Milliseconds, because "the last one" may be in another journal.
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    changes = tuple(planned.record for planned in plan)
    entry = Entry(home, number, "applying", now, fix, code, secrets.token_hex(4), changes)
    try:
        _write_down(entry, plan)
    except BaseException:
        drop(entry)
        raise
    return entry


def mark(entry: Entry, state: State) -> Entry:
    """Give a transaction another state; when that fails it keeps the old one. Raises OSError."""
    marked = replace(entry, state=state)
    entry.folder.rename(marked.folder)
    try:
        safe_write.sync_folder(entry.home)
    except OSError:
        marked.folder.rename(entry.folder)
        raise
    return marked


def note(entry: Entry, index: int, what: str, content: bytes) -> None:
    """Add to a transaction what is known only once it runs, whole or not at all. Raises OSError."""
    _write_whole(entry.at(index, what), content)


def noted(entry: Entry, index: int, what: str) -> bytes | None:
    """What `note` added, or None."""
    return safe_write.read(entry.at(index, what))


def content(entry: Entry, index: int, side: Side) -> bytes | None:
    """The bytes of a changed file on one side of the change; None when the file did not exist there.

    Raises Refused when the journal's copy is not what it was.
    """
    record = dict(entry.files())[index]
    expected = record.before if side == "before" else record.after
    if expected is None:
        return None
    saved = entry.at(index, side)
    kept = safe_write.read(saved)
    if kept is None or safe_write.sha256(kept) != expected:
        raise Refused(
            f"{saved} is {'missing' if kept is None else 'damaged'}, so {record.file} cannot be brought to it; reinstall "
            f"the package that the file belongs to, then move {entry.folder} elsewhere"
        )
    return kept


def drop(entry: Entry) -> None:
    """Forget a transaction that changed nothing, or did not even begin. Raises OSError."""
    unfinished = entry.home / f"{entry.id}-{_UNFINISHED}"
    with contextlib.suppress(FileNotFoundError):
        entry.folder.rename(unfinished)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(unfinished)


def tidy(home: Path) -> None:
    """Remove what a crash left of the journal's own writing, and keep the folder out of git.

    The caller holds the lock. Raises Refused and OSError.
    """
    for found in _folders(home):
        if found["state"] == _UNFINISHED:
            shutil.rmtree(home / found.string)
    ours = [home / found.string for found in _folders(home)]
    for unfinished in (home / ".gitignore.new", *(file for folder in ours for file in folder.glob("*.new"))):
        unfinished.unlink(missing_ok=True)
    if not os.path.exists(home / ".gitignore"):
        _write_whole(home / ".gitignore", b"*\n")


def is_journal(home: Path) -> bool:
    """Whether this folder holds a transaction: any other folder is somebody else's, and nothing in it is touched."""
    try:
        return any(os.path.isfile(home / found.string / "entry.json") for found in _folders(home))
    except OSError:
        return False


def entries(home: Path) -> tuple[Entry, ...]:
    """All transactions, oldest first. Raises Refused, naming the file, when one of them cannot be understood."""
    folders = sorted(
        (found for found in _folders(home) if found["state"] != _UNFINISHED),
        key=lambda found: int(found["number"]),
    )
    return tuple(
        _read_entry(home, int(found["number"]), found["state"], home / found.string) for found in folders
    )


def _write_down(entry: Entry, plan: Sequence[Planned]) -> None:
    folder = entry.home / f"{entry.id}-{_UNFINISHED}"
    folder.mkdir()
    for index, planned in enumerate(plan):
        for side, content in planned.contents.items():
            safe_write.create(folder / f"{index}.{side}", content, _journal_mode(planned.record))
    document = {
        "schema_version": SCHEMA_VERSION,
        "time": entry.time,
        "fix": entry.fix,
        "code": entry.code,
        "token": entry.token,
        "changes": [asdict(change) for change in entry.changes],
    }
    safe_write.create(folder / "entry.json", json.dumps(document, indent=1).encode("ascii") + b"\n", 0o644)
    safe_write.sync_folder(folder)
    safe_write.rename(folder, entry.folder)


def _write_whole(file: Path, content: bytes) -> None:
    unfinished = file.with_name(f"{file.name}.new")
    safe_write.create(unfinished, content, 0o644)
    safe_write.rename(unfinished, file)


def _folders(home: Path) -> list[re.Match[str]]:
    try:
        names = [path.name for path in home.iterdir()]
    except FileNotFoundError:
        return []
    return [found for found in map(_FOLDER.fullmatch, names) if found]


def _journal_mode(record: Record) -> int:
    """The journal's copy is as readable as the file itself, and nobody's to execute."""
    return int(record.mode, 8) & 0o666 if isinstance(record, FileRecord) else 0o644


def _read_entry(home: Path, number: int, state: Any, folder: Path) -> Entry:
    file = folder / "entry.json"
    try:
        text = safe_write.read(file, _LARGEST_ENTRY)
        if text is None:
            raise Refused(_unreadable(file, "it is missing"))
        document = json.loads(text)
        if document["schema_version"] != SCHEMA_VERSION:
            raise Refused(
                f"{file} was written by another version of verl-doctor (schema {document['schema_version']!r:.20}, "
                f"this one reads {SCHEMA_VERSION}); use that version to undo it"
            )
        changes = tuple(_read_record(raw) for raw in document["changes"])
        said = {name: _text(document[name]) for name in ("time", "fix", "code", "token")}
    except OSError as error:
        raise Refused(_unreadable(file, said_by(error))) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, dacite.DaciteError) as error:
        raise Refused(_unreadable(file, f"{type(error).__name__}: {str(error)[:100]}")) from None
    if not re.fullmatch(r"[0-9a-f]{8}", said["token"]):
        raise Refused(_unreadable(file, "its token is not one"))
    return Entry(home, number, state, changes=changes, **said)


def _read_record(raw: dict[str, Any]) -> Record:
    record: Record = dacite.from_dict(_KINDS[raw["kind"]], raw, dacite.Config(cast=[tuple], strict=True))
    paths: tuple[str, ...] = ()
    if isinstance(record, FileRecord):
        int(record.mode, 8)
        paths = (record.path, record.file, *record.folders)
    elif isinstance(record, BytecodeRecord):
        paths = (record.python, *record.roots)
    for path in paths:
        if not Path(path).is_absolute() or b"\0" in os.fsencode(
            path
        ):  # UnicodeEncodeError is a ValueError too
            raise ValueError(f"{path!r:.80} is no absolute path")
    return record


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _unreadable(file: Path, why: str) -> str:
    return (
        f"the journal's {file} cannot be understood ({why}); nothing was changed. Its folder holds the original bytes "
        f"as *.before: move it elsewhere to go on without it"
    )
