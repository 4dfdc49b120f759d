"""The journal: a folder per transaction, to restore every file after a crash or a week later.

    .verl-doctor/
        0001-applied/       the number is the transaction's id, the rest its state
            entry.json      what was to be done; never rewritten
            0.before        the original bytes of change 0 (absent when the file was new)
            0.after         the bytes that replaced them
            kept.0          the original file itself: another hard link to it, which undo puts back

The state changes by renaming the folder: an atomic step, which a full disk cannot prevent. No other user can
enter the folder, and a journal that another user could have written is refused. Its files are private, except
for the original itself.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeVar

import dacite

from verl_doctor.toolkit.changes import safe_write
from verl_doctor.toolkit.system import own_folders
from verl_doctor.toolkit.system.errors import Refused, os_error_text
from verl_doctor.toolkit.system.ownership import next_step, why_any_not_ours

SCHEMA_VERSION = 2
_READ = (1, SCHEMA_VERSION)
State = Literal["applying", "applied", "undoing", "undone", "failed"]
Side = Literal["before", "after"]

_FOLDER = re.compile(r"(?P<number>[0-9]{4,18})-(?P<state>applying|applied|undoing|undone|failed|preparing)")
_LARGEST_NUMBER = 10**18 - 1  # of 18 digits
_UNFINISHED = "preparing"
_LARGEST_ENTRY = 64 * 1024 * 1024
_LARGEST_ID = 2**32 - 2  # the next number would mean "do not change the owner"
_LATEST = 2**62 * 10**9  # nanoseconds that fit into 64 bits
_MODE = 0o600
_KEPT = "kept"

T = TypeVar("T")


@dataclass(frozen=True)
class FileRecord:
    """A replaced, created or removed file, a created link, or a link made a private copy of its target.

    A link to a folder becomes a link to a `private_folder` with the folders `folders`; a file `within` one
    exists only in it. The content of a link is its target. `before` and `after` are SHA-256: `before` is None
    for a new file, `after` for a removed one. `path` is the plan's path, `file` the written path; `folders`
    are the folders that had to be made, outermost first; `mode` is octal. `atime` and `mtime` are the
    original's times in nanoseconds, None where they were not recorded. `linked` is the SHA-256 of the former
    target of a link that became a private copy.
    """

    kind: Literal["replace_file", "new_file", "removed_file", "new_link", "private_copy", "private_folder"]
    path: str
    file: str
    before: str | None
    after: str | None
    mode: str
    uid: int
    gid: int
    folders: tuple[str, ...] = ()
    atime: int | None = None
    mtime: int | None = None
    linked: str = ""
    within: str = ""


@dataclass(frozen=True)
class BytecodeRecord:
    """Bytecode caches that were written below `roots`, all by interpreters with the cache tag `tag`."""

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
    """A dead job's leftover to be removed, and the proof that it is unused. `size` is in bytes."""

    kind: Literal["removal"]
    what: str
    name: str
    proof: tuple[str, ...]
    size: int | None = None


@dataclass(frozen=True)
class InstallRecord:
    """Packages that were installed into `copy`, a copy of `environment`, or into `environment` itself.

    Its lock file is kept as `after`.
    """

    kind: Literal["install_packages"]
    environment: str
    copy: str
    argv: tuple[str, ...]
    cleared: tuple[str, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether the environment itself was changed."""
        return self.copy == self.environment


Record = FileRecord | BytecodeRecord | CommandRecord | RemovalRecord | InstallRecord

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


@dataclass(frozen=True)
class Planned:
    """A record with the contents that it refers to, before it is written."""

    record: Record
    contents: Mapping[Side, bytes]


@dataclass(frozen=True)
class FolderRecord:
    """A folder before its first file changed: its times in nanoseconds, and a digest of the names in it."""

    path: str
    atime: int
    mtime: int
    names: str


@dataclass(frozen=True)
class Run:
    """Changes that belong together: those of one run of the doctor, in any journals.

    `token` identifies the run, "" for a single change. `homes` are the journals that may contain a part of
    it, `environment` is the folder of the environment that it concerns.
    """

    token: str = ""
    homes: tuple[str, ...] = ()
    environment: str = ""


def new_run(homes: Iterable[Path], environment: Path) -> Run:
    """Return a new run, whose changes are undone together."""
    return Run(secrets.token_hex(8), tuple(map(str, dict.fromkeys(homes))), os.path.realpath(environment))


@dataclass(frozen=True)
class Entry:
    """One transaction as the journal records it. `token` makes the names of its temporary files unique.

    `owner` is a user, besides root and this one, whose entries in the journal are trusted.
    """

    home: Path
    number: int
    state: State
    time: str
    fix: str
    code: str
    token: str
    changes: tuple[Record, ...]
    run: Run = field(default_factory=Run)
    around: tuple[FolderRecord, ...] = ()
    owner: int = 0

    @property
    def id(self) -> str:
        """The name of the transaction that users see."""
        return f"{self.number:04}"

    @property
    def folder(self) -> Path:
        """The present folder of its files."""
        return self.home / f"{self.id}-{self.state}"

    def at(self, index: int, what: str) -> Path:
        """Return the file that holds `what` of the change number `index`."""
        return self.folder / f"{index}.{what}"

    def kept(self, index: int) -> Path:
        """Return the path of the original file of the change number `index`, if it could be kept."""
        return self.folder / f"{_KEPT}.{index}"

    def files(self) -> list[tuple[int, FileRecord]]:
        """Return its changed files, with their numbers."""
        return [(index, r) for index, r in enumerate(self.changes) if isinstance(r, FileRecord)]


def open_home(home: Path) -> None:
    """Create the journal's folder if necessary, and close it to other users. Raises Refused and OSError."""
    demand_own(home)
    try:
        own_folders.made(home)
    except own_folders.ForeignFolderError as error:
        raise Refused(_untrusted(home, str(error))) from None
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        elsewhere = "" if home.name.startswith(".") else ", or set XDG_STATE_HOME to another folder"
        raise Refused(
            f"{os_error_text(error)}, and nothing is changed without the journal {home}, which undo "
            f"needs; make that folder writable{elsewhere}"
        ) from None


def demand_own(home: Path, *, to_read: bool = False) -> int:
    """Refuse a journal if another user could have written to its folder or to a transaction's.

    Returns a further trusted user: root, or for reading (`to_read`) the owner of the folder that contains the
    journal, to whom all of that belongs.
    """
    owner = home.parent.stat().st_uid if to_read and os.path.isdir(home) else 0
    folders = (home, *(home / found.string for found in _folders(home)))
    if why := why_any_not_ours(folders, group_counts=True, trusted=owner):
        raise Refused(_untrusted(home, why))
    return owner


def begin(
    home: Path,
    fix: str,
    code: str,
    plan: Sequence[Planned],
    run: Run = Run(),
    around: Sequence[FolderRecord] = (),
) -> Entry:
    """Record a transaction and flush it to the disk before anything is changed. Raises OSError.

    The last step, a rename, creates it; `tidy` removes what a crash leaves before that. Its number is new in
    all journals of its run.
    """
    homes = dict.fromkeys((home, *map(Path, run.homes)))
    number = 1 + max(
        (int(found["number"]) for home_folder in homes for found in _folders(home_folder)), default=0
    )
    if number > _LARGEST_NUMBER:
        raise Refused(f"{home} has no free number for another transaction; move it elsewhere")
    # Milliseconds, because "the last one" may be in another journal.
    now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    changes = tuple(planned.record for planned in plan)
    entry = Entry(home, number, "applying", now, fix, code, secrets.token_hex(4), changes, run, tuple(around))
    try:
        _write_down(entry, plan)
    except BaseException:
        drop(entry)
        raise
    return entry


def mark(entry: Entry, state: State) -> Entry:
    """Set a transaction's state; on failure it keeps the old one. Raises OSError."""
    marked = replace(entry, state=state)
    entry.folder.rename(marked.folder)
    try:
        safe_write.sync_folder(entry.home)
    except OSError:
        marked.folder.rename(entry.folder)
        raise
    return marked


def note(entry: Entry, index: int, what: str, content: bytes) -> None:
    """Atomically add to a transaction what is only known while it runs. Raises OSError."""
    _write_whole(entry.at(index, what), content)


def noted(entry: Entry, index: int, what: str) -> bytes | None:
    """Return what `note` added, or None."""
    return _read(entry.at(index, what), entry.owner)


def content(entry: Entry, index: int, side: Side) -> bytes | None:
    """Return the bytes of a changed file on one side of the change; None if the file did not exist then.

    Raises Refused if the journal's copy is damaged.
    """
    record = dict(entry.files())[index]
    expected = record.before if side == "before" else record.after
    if expected is None:
        return None
    saved = entry.at(index, side)
    kept = _read(saved, entry.owner)
    if kept is None or safe_write.sha256(kept) != expected:
        raise Refused(
            f"{saved} is {'missing' if kept is None else 'damaged'}, so {record.file} cannot be "
            "restored from it; reinstall the package that the file belongs to, then move "
            f"{entry.folder} elsewhere"
        )
    return kept


def forget_originals(entry: Entry) -> None:
    """Remove the original files of a finished transaction, which are back in place. Raises OSError."""
    for file in entry.folder.glob(f"{_KEPT}.*"):
        file.unlink(missing_ok=True)


def drop(entry: Entry) -> None:
    """Delete a transaction that changed nothing or never began. Raises OSError."""
    unfinished = entry.home / f"{entry.id}-{_UNFINISHED}"
    with contextlib.suppress(FileNotFoundError):
        entry.folder.rename(unfinished)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(unfinished)


def tidy(home: Path) -> None:
    """Remove what a crash left of the journal's own writes, and exclude the folder from git.

    The caller holds the lock. Raises Refused and OSError.
    """
    for found in _folders(home):
        if found["state"] == _UNFINISHED:
            shutil.rmtree(home / found.string)
        elif found["state"] in {"undone", "failed"}:
            for file in (home / found.string).glob(f"{_KEPT}.*"):
                file.unlink(missing_ok=True)
    ours = [home / found.string for found in _folders(home)]
    for unfinished in (home / ".gitignore.new", *(file for folder in ours for file in folder.glob("*.new"))):
        unfinished.unlink(missing_ok=True)
    if not os.path.exists(home / ".gitignore"):
        _write_whole(home / ".gitignore", b"*\n")


def is_journal(home: Path) -> bool:
    """Return whether this folder is a transaction. Other folders are not ours and never touched."""
    try:
        return any(os.path.isfile(home / found.string / "entry.json") for found in _folders(home))
    except OSError:
        return False


def entries(home: Path, *, to_read: bool = False) -> tuple[Entry, ...]:
    """Return all transactions, oldest first.

    Raises Refused, naming the file, if one of them is invalid or could have been written by another user (see
    `demand_own`).
    """
    owner = demand_own(home, to_read=to_read)
    folders = sorted(
        (found for found in _folders(home) if found["state"] != _UNFINISHED),
        key=lambda found: int(found["number"]),
    )
    return tuple(
        _read_entry(home, int(found["number"]), found["state"], home / found.string, owner)
        for found in folders
    )


def _write_down(entry: Entry, plan: Sequence[Planned]) -> None:
    folder = entry.home / f"{entry.id}-{_UNFINISHED}"
    own_folders.made(folder)
    for index, planned in enumerate(plan):
        for side, content in planned.contents.items():
            safe_write.create(folder / f"{index}.{side}", content, _MODE)
        if isinstance(planned.record, FileRecord) and planned.record.before is not None:
            _keep(Path(planned.record.file), folder / f"{_KEPT}.{index}")
    document = {
        "schema_version": SCHEMA_VERSION,
        "time": entry.time,
        "fix": entry.fix,
        "code": entry.code,
        "token": entry.token,
        "run": asdict(entry.run),
        "around": [asdict(folder) for folder in entry.around],
        "changes": [asdict(change) for change in entry.changes],
    }
    safe_write.create(folder / "entry.json", json.dumps(document, indent=1).encode("ascii") + b"\n", _MODE)
    safe_write.sync_folder(folder)
    safe_write.rename(folder, entry.folder)


def _write_whole(file: Path, content: bytes) -> None:
    unfinished = file.with_name(f"{file.name}.new")
    safe_write.create(unfinished, content, _MODE)
    safe_write.rename(unfinished, file)


def _keep(original: Path, kept: Path) -> None:
    """Keep the original by a hard link if file system and kernel permit it; its bytes are kept anyway."""
    with contextlib.suppress(OSError):
        os.link(original, kept, follow_symlinks=False)


def _read(file: Path, owner: int, largest: int | None = None) -> bytes | None:
    """Return the content of a journal file, None if it is missing.

    Raises Refused if another user could have written it.
    """
    return safe_write.read(file, largest, owner=owner)


def _folders(home: Path) -> list[re.Match[str]]:
    try:
        names = [path.name for path in home.iterdir()]
    except FileNotFoundError:
        return []
    return [found for found in map(_FOLDER.fullmatch, names) if found]


def _read_entry(home: Path, number: int, state: Any, folder: Path, owner: int) -> Entry:
    file = folder / "entry.json"
    try:
        text = _read(file, owner, _LARGEST_ENTRY)
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


def _untrusted(home: Path, why: str) -> str:
    step = next_step(home, *(home / found.string for found in _folders(home)))
    return f"the journal {home} is not trusted, because another user could have written it: {why}; {step}"


def _unreadable(file: Path, why: str) -> str:
    return (
        f"the journal's {file} is invalid ({why}); nothing was changed. Its folder contains the "
        "original bytes as *.before; move it elsewhere to continue without it"
    )
