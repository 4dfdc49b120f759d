"""Changed files: the present state of each, and moving it to the other state.

A link is a file whose content is its target. If the original file itself was kept, undo restores that file,
with its other hard links and its times; otherwise a copy gets the original's attributes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.changes import journal, links, private_folder, safe_write
from verl_doctor.toolkit.changes.difference import difference
from verl_doctor.toolkit.changes.records import Entry, FileRecord, Side
from verl_doctor.toolkit.system.errors import Refused


def state(record: FileRecord) -> Side | Literal["other"]:
    """Return on which side of the change the file is now, or "other" if another program wrote it.

    Raises OSError.
    """
    try:
        return side_of(record, _content(record))
    except Refused:
        return "other"


def side_of(record: FileRecord, found: bytes | None) -> Side | Literal["other"]:
    """Return on which side of its change a file with this content is; None stands for a file that is gone."""
    if found is None and record.within:
        return "before"  # its private folder does not exist, or is about to be removed
    fingerprint = None if found is None else safe_write.sha256(found)
    if fingerprint == record.after:
        return "after"
    return "before" if fingerprint == record.before else "other"


def move(entry: Entry, indices: Sequence[int], side: Side, ours: frozenset[str] = frozenset()) -> None:
    """Move these files of a transaction from one side of their change to the other.

    All contents are written next to their files before the first file changes, so a full disk is noticed
    before anything has changed. `ours` are folders that the doctor made; empty ones are removed. Raises
    Refused if a file is on neither side, and OSError. A call for the other side reverts what was done until
    then.
    """
    records = dict(entry.files())
    sweep(entry)
    for index in indices:
        _stage(entry, index, records[index], side)
    for index in indices:
        _commit(entry, index, records[index], side)
    for record in records.values():
        for source in _sources(entry, record):
            safe_write.drop_bytecode(source)
        if side == "before":
            _remove_empty_folders(record, ours)
            if record.kind == "private_folder" and state(record) == "before":
                private_folder.remove(record)


def write(entry: Entry, index: int, record: FileRecord, found: bytes, content: bytes) -> None:
    """Give an edited file other content, if it is still as it was `found`. Raises Refused and OSError."""
    file, temporary = Path(record.file), _temporary(entry, index, record)
    safe_write.create_like(temporary, content, file)
    if safe_write.read(file) != found:
        raise Refused(f"{file} was changed in this very moment; try again")
    safe_write.rename(temporary, file)
    for source in _sources(entry, record):
        safe_write.drop_bytecode(source)


def _sources(entry: Entry, record: FileRecord) -> frozenset[Path]:
    """Return the paths under which Python may have cached a file.

    The plan's own path counts if it is in the journal's environment.
    """
    file, named = Path(record.file), Path(record.path)
    environment = entry.home.parent
    elsewhere = links.is_environment(environment) and not Path(os.path.realpath(named.parent)).is_relative_to(
        os.path.realpath(environment)
    )
    return frozenset({file} if elsewhere or record.within else {file, named})


def sweep(entry: Entry) -> None:
    """Remove the transaction's temporary files. Raises OSError."""
    for index, record in entry.files():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _temporary(entry, index, record).unlink()


def changed_since(entry: Entry, index: int, record: FileRecord, found: bytes | None = None) -> str:
    """Describe how a file was changed since the doctor changed it. Raises OSError.

    `found` is what it will contain by then, by default what it contains now.
    """
    if found is None and record.kind == "private_copy" and Path(record.file).is_symlink():
        return _replaced(entry, index, record)
    try:
        found = _content(record) if found is None else found
    except Refused as error:
        return (
            str(error) if record.kind in {"new_link", "private_folder"} else _replaced(entry, index, record)
        )
    if found is None:
        kept = entry.at(index, "before")
        return f"{record.file} is gone" + (f"; its original content is {kept}" if record.before else "")
    if record.after is None:
        return (
            f"{record.file} exists again with other content; the removed file is {entry.at(index, 'before')}"
        )
    ours = journal.content(entry, index, "after") or b""
    if record.kind in {"new_link", "private_folder"}:
        return (
            f"{record.file} now leads to {os.fsdecode(found)}; the doctor made it lead to {os.fsdecode(ours)}"
        )
    shown = difference(record.file, ours, found, ("as the doctor left it", "now"))
    return f"{record.file} was edited since:\n{shown}"


def _replaced(entry: Entry, index: int, record: FileRecord) -> str:
    """Describe what is now in the place of a regular file, and what to do about it."""
    file = Path(record.file)
    what = f"a link to {os.fspath(file.readlink())}" if file.is_symlink() else "not a regular file"
    if record.kind == "private_copy":
        by_hand = f"make it a link to {os.fsdecode(journal.content(entry, index, 'before') or b'')}"
    else:
        by_hand = "remove it" if record.before is None else f"restore it from {entry.at(index, 'before')}"
    return (
        f"{file} is now {what}, which the doctor does not change: put the file itself back in its place, "
        f"then try again; or {by_hand} by hand"
    )


def _content(record: FileRecord) -> bytes | None:
    """Return the current content of a record's file, None when it does not exist.

    Raises Refused for another kind of file, and OSError.
    """
    file = Path(record.file)
    if record.kind == "private_copy" and file.is_symlink():
        return os.fsencode(file.readlink())
    if record.kind not in {"new_link", "private_folder"}:
        return safe_write.read(file)
    try:
        return os.fsencode(file.readlink())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Refused(f"{file} is no longer a link; move it away, then try again") from None
        raise


def _temporary(entry: Entry, index: int, record: FileRecord) -> Path:
    return Path(record.file).with_name(f".verl-doctor-{entry.id}-{entry.token}-{index}")


def _stage(entry: Entry, index: int, record: FileRecord, side: Side) -> None:
    content = journal.content(entry, index, side)
    if content is None:
        return
    if record.kind == "private_folder" and side == "after":
        private_folder.remove(record)
    if record.kind != "private_folder" or side == "after":
        for folder in record.folders:
            safe_write.make_folder(Path(folder))
    temporary = _temporary(entry, index, record)
    if side == "before" and record.before is not None:
        _stage_original(entry, index, record, content)
    elif record.kind == "new_link":
        temporary.symlink_to(os.fsdecode(content))
    elif record.kind == "private_folder":
        private_folder.build(record)
        temporary.symlink_to(os.fsdecode(content))
        os.chown(temporary, record.uid, record.gid, follow_symlinks=False)
    elif record.kind == "private_copy":
        target = Path(os.path.realpath(record.file))
        safe_write.create_like(temporary, content, target, owner=(record.uid, record.gid))
    elif record.before is None:
        safe_write.create(temporary, content, int(record.mode, 8))
    else:
        safe_write.create_like(temporary, content, Path(record.file))


def _stage_original(entry: Entry, index: int, record: FileRecord, content: bytes) -> None:
    """Prepare the original: the kept file if its attributes are unchanged, else a copy with its times."""
    temporary, kept = _temporary(entry, index, record), entry.kept(index)
    if _is_original(kept, record, content):
        os.link(kept, temporary, follow_symlinks=False)
    elif record.after is None:
        safe_write.create(temporary, content, int(record.mode, 8))
    elif record.kind in {"private_copy", "private_folder"}:
        temporary.symlink_to(os.fsdecode(content))
        os.chown(temporary, record.uid, record.gid, follow_symlinks=False)
    else:
        safe_write.create_like(temporary, content, Path(record.file))
    if record.atime is not None and record.mtime is not None:
        os.utime(temporary, ns=(record.atime, record.mtime), follow_symlinks=False)


def _is_original(kept: Path, record: FileRecord, content: bytes) -> bool:
    """Return whether a kept file is still the original and matches its successor's attributes.

    A mode may have been set since.
    """
    try:
        about = kept.lstat()
        if record.kind in {"private_copy", "private_folder"}:
            return stat.S_ISLNK(about.st_mode) and os.fsencode(kept.readlink()) == content
        if record.after is None:
            return safe_write.read(kept) == content
        now = Path(record.file)
        return safe_write.read(kept) == content and _settings(kept) == _settings(now)
    except (OSError, Refused):
        return False


def _settings(file: Path) -> tuple[object, ...]:
    """Return what a user sets on a file besides its content."""
    about = file.lstat()
    try:
        attributes = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except OSError:
        attributes = {}
    return about.st_mode, about.st_uid, about.st_gid, attributes


def _commit(entry: Entry, index: int, record: FileRecord, side: Side) -> None:
    file = Path(record.file)
    if state(record) != ("before" if side == "after" else "after"):
        raise Refused(f"{file} was changed in this very moment; try again")
    if (record.before if side == "before" else record.after) is None:
        safe_write.remove(file)
    else:
        safe_write.rename(_temporary(entry, index, record), file)


def _remove_empty_folders(record: FileRecord, ours: frozenset[str]) -> None:
    """Remove the folders around a removed file, innermost first, as far as the doctor made them."""
    for folder in Path(record.file).parents:
        if str(folder) not in ours and str(folder) not in record.folders:
            return
        if not (safe_write.remove_if_empty(folder / "__pycache__") and safe_write.remove_if_empty(folder)):
            return
