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
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from verl_doctor.toolkit.changes import safe_write
from verl_doctor.toolkit.changes.journal_entries import (
    SCHEMA_VERSION,
    UNFINISHED,
    demand_own,
    read_file,
    transaction_folders,
    untrusted,
)
from verl_doctor.toolkit.changes.records import (
    KEPT,
    Entry,
    FileRecord,
    FolderRecord,
    Planned,
    Run,
    Side,
    State,
)
from verl_doctor.toolkit.system import own_folders
from verl_doctor.toolkit.system.errors import Refused, os_error_text

_LARGEST_NUMBER = 10**18 - 1  # of 18 digits
_MODE = 0o600


def open_home(home: Path) -> None:
    """Create the journal's folder if necessary, and close it to other users. Raises Refused and OSError."""
    demand_own(home)
    try:
        own_folders.made(home)
    except own_folders.ForeignFolderError as error:
        raise Refused(untrusted(home, str(error))) from None
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        elsewhere = "" if home.name.startswith(".") else ", or set XDG_STATE_HOME to another folder"
        raise Refused(
            f"{os_error_text(error)}, and nothing is changed without the journal {home}, which undo "
            f"needs; make that folder writable{elsewhere}"
        ) from None


def begin(
    home: Path,
    fix: str,
    code: str,
    plan: Sequence[Planned],
    run: Run = Run(),  # noqa: B008 - it is frozen
    around: Sequence[FolderRecord] = (),
) -> Entry:
    """Record a transaction and flush it to the disk before anything is changed. Raises OSError.

    The last step, a rename, creates it; `tidy` removes what a crash leaves before that. Its number is new in
    all journals of its run.
    """
    homes = dict.fromkeys((home, *map(Path, run.homes)))
    number = 1 + max(
        (int(found["number"]) for home_folder in homes for found in transaction_folders(home_folder)),
        default=0,
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
    return read_file(entry.at(index, what), entry.owner)


def content(entry: Entry, index: int, side: Side) -> bytes | None:
    """Return the bytes of a changed file on one side of the change; None if the file did not exist then.

    Raises Refused if the journal's copy is damaged.
    """
    record = dict(entry.files())[index]
    expected = record.before if side == "before" else record.after
    if expected is None:
        return None
    saved = entry.at(index, side)
    kept = read_file(saved, entry.owner)
    if kept is None or safe_write.sha256(kept) != expected:
        raise Refused(
            f"{saved} is {'missing' if kept is None else 'damaged'}, so {record.file} cannot be "
            "restored from it; reinstall the package that the file belongs to, then move "
            f"{entry.folder} elsewhere"
        )
    return kept


def forget_originals(entry: Entry) -> None:
    """Remove the original files of a finished transaction, which are back in place. Raises OSError."""
    for file in entry.folder.glob(f"{KEPT}.*"):
        file.unlink(missing_ok=True)


def drop(entry: Entry) -> None:
    """Delete a transaction that changed nothing or never began. Raises OSError."""
    unfinished = entry.home / f"{entry.id}-{UNFINISHED}"
    with contextlib.suppress(FileNotFoundError):
        entry.folder.rename(unfinished)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(unfinished)


def tidy(home: Path) -> None:
    """Remove what a crash left of the journal's own writes, and exclude the folder from git.

    The caller holds the lock. Raises Refused and OSError.
    """
    for found in transaction_folders(home):
        if found["state"] == UNFINISHED:
            shutil.rmtree(home / found.string)
        elif found["state"] in {"undone", "failed"}:
            for file in (home / found.string).glob(f"{KEPT}.*"):
                file.unlink(missing_ok=True)
    ours = [home / found.string for found in transaction_folders(home)]
    for unfinished in (home / ".gitignore.new", *(file for folder in ours for file in folder.glob("*.new"))):
        unfinished.unlink(missing_ok=True)
    if not os.path.exists(home / ".gitignore"):
        _write_whole(home / ".gitignore", b"*\n")


def _write_down(entry: Entry, plan: Sequence[Planned]) -> None:
    folder = entry.home / f"{entry.id}-{UNFINISHED}"
    own_folders.made(folder)
    for index, planned in enumerate(plan):
        for side, content in planned.contents.items():
            safe_write.create(folder / f"{index}.{side}", content, _MODE)
        if isinstance(planned.record, FileRecord) and planned.record.before is not None:
            _keep(Path(planned.record.file), folder / f"{KEPT}.{index}")
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
