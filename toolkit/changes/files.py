"""Changed files: a planned change's record, a file's present state, and moving it to the other state.

A link is a file whose content is its target. If the original file itself was kept, undo restores that file,
with its other hard links and its times; otherwise a copy gets the original's attributes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.change import NewFile, NewLink, RemoveFile, ReplaceFile
from verl_doctor.toolkit.changes import journal, links, private_folder, safe_write
from verl_doctor.toolkit.changes.difference import unified
from verl_doctor.toolkit.changes.journal import Entry, FileRecord, FolderRecord, Planned, Side
from verl_doctor.toolkit.changes.private_folder import PrivateFolder
from verl_doctor.toolkit.system.errors import Refused, os_error_text

_LONGEST_DIFFERENCE = 40
# The mode of the journal's copy; links themselves have none that could be set.
_MODE_OF_LINKS = 0o644
# linux/fs.h: FS_IOC_GETFLAGS, and the flags "immutable" and "append only".
_GET_FLAGS, _UNCHANGEABLE = 0x80086601, 0x10 | 0x20
# Folder entries other than sources: caches, and the doctor's own files.
_NO_CONTENT = ("__pycache__", ".verl-doctor")


def plan(
    change: ReplaceFile | NewFile | RemoveFile | NewLink,
    *,
    through_links: bool = False,
    private: PrivateFolder | None = None,
) -> Planned | None:
    """Return the record of a change on this disk, or None if it is already in place.

    A link out of its environment becomes a private copy, in a `private` folder if the link leads to a folder,
    unless the change goes `through_links`. Raises Refused if the file has changed since the plan was made, or
    cannot be changed now.
    """
    match change:
        case ReplaceFile():
            return _replacement(change, private, through_links=through_links)
        case NewFile() | NewLink() if not through_links:
            links.demand_private(change.path)
    match change:
        case RemoveFile():
            return _removal(change)
        case NewFile():
            return _new_file(change)
        case NewLink():
            return _new_link(change)


def state(record: FileRecord) -> Side | Literal["other"]:
    """Return on which side of the change the file is now, or "other" if another program wrote it.

    Raises OSError.
    """
    try:
        found = _content(record)
    except Refused:
        return "other"
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


def difference(path: str, old: bytes, new: bytes, names: tuple[str, str]) -> str:
    """Return the first lines of a unified diff."""
    rows = unified(old, new, (f"{path} ({names[0]})", f"{path} ({names[1]})"))
    more = len(rows) - _LONGEST_DIFFERENCE
    return "".join(rows[:_LONGEST_DIFFERENCE]) + (f"... and {more} more lines\n" if more > 0 else "")


def changed_since(entry: Entry, index: int, record: FileRecord, found: bytes | None = None) -> str:
    """Describe how a file was changed since the doctor changed it. Raises Refused and OSError.

    `found` is what it will contain by then, by default what it contains now.
    """
    found = _content(record) if found is None else found
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


def around(plan: Sequence[Planned]) -> tuple[FolderRecord, ...]:
    """Return the current state of the folders whose entries a plan changes. Raises OSError."""
    files = [Path(planned.record.file) for planned in plan if isinstance(planned.record, FileRecord)]
    folders = dict.fromkeys(
        next(folder for folder in file.parents if os.path.isdir(folder)) for file in files
    )
    return tuple(_folder(folder) for folder in folders)


def restore_folder_times(folders: Sequence[FolderRecord]) -> None:
    """Restore the times of folders with unchanged names in them, to keep Python's cached listings valid."""
    for record in folders:
        with contextlib.suppress(OSError):
            if _folder(Path(record.path)).names == record.names:
                os.utime(record.path, ns=(record.atime, record.mtime))


def _folder(folder: Path) -> FolderRecord:
    seen = folder.stat()
    names = sorted(name for name in os.listdir(folder) if not name.startswith(_NO_CONTENT))  # noqa: PTH208
    digest = safe_write.sha256("\0".join(names).encode("utf-8", "surrogateescape"))
    return FolderRecord(str(folder), seen.st_atime_ns, seen.st_mtime_ns, digest)


def _replacement(
    change: ReplaceFile, private: PrivateFolder | None, *, through_links: bool
) -> Planned | None:
    file = _real(change.path)
    seen = file.stat()
    found = safe_write.read(file)
    if found is None:
        raise Refused(f"{change.path} no longer exists; run verl-doctor fix again for a new plan")
    if found == change.after:
        return None
    if found != change.before:
        shown = difference(str(file), change.before, found, ("as planned from", "now"))
        raise Refused(
            f"{change.path} was changed since the plan was made; run verl-doctor fix again for a new "
            f"plan\n{shown}"
        )
    if private is not None:
        return _copy_within(change, private, seen)
    out = None if through_links else links.link_out(change.path)
    if out is not None:
        return _private_copy(change, links.written(change.path, through_links=False), seen)
    _demand_writable(file.parent)
    _demand_changeable(file)
    _demand_keepable_owner(file, seen)
    record = FileRecord(
        kind="replace_file",
        path=_absolute(change.path),
        file=str(file),
        before=safe_write.sha256(change.before),
        after=safe_write.sha256(change.after),
        mode=f"{stat.S_IMODE(seen.st_mode):04o}",
        uid=seen.st_uid,
        gid=seen.st_gid,
        atime=seen.st_atime_ns,
        mtime=seen.st_mtime_ns,
    )
    return Planned(record, {"before": change.before, "after": change.after})


def _removal(change: RemoveFile) -> Planned | None:
    path = Path(_absolute(change.path))
    if not os.path.lexists(path):
        return None
    if path.is_symlink() or links.link_out(path) is not None:
        raise Refused(f"{path} is reached through a link; remove it yourself")
    file = _real(path)
    seen, found = file.stat(), safe_write.read(file)
    if found != change.before:
        raise Refused(
            f"{path} was changed since the plan was made; run verl-doctor fix again for a new plan\n"
            + difference(str(file), change.before, found or b"", ("as planned from", "now"))
        )
    _demand_writable(file.parent)
    _demand_changeable(file)
    _demand_keepable_owner(file, seen)
    record = FileRecord(
        kind="removed_file",
        path=str(path),
        file=str(file),
        before=safe_write.sha256(change.before),
        after=None,
        mode=f"{stat.S_IMODE(seen.st_mode):04o}",
        uid=seen.st_uid,
        gid=seen.st_gid,
        atime=seen.st_atime_ns,
        mtime=seen.st_mtime_ns,
    )
    return Planned(record, {"before": change.before})


def _private_copy(change: ReplaceFile, link: Path, target: os.stat_result) -> Planned:
    """Replace a link by a file of this environment. `target` is what the link leads to."""
    about, leads_to = link.lstat(), os.fsencode(link.readlink())
    _demand_writable(link.parent)
    _demand_keepable_owner(link, about)
    record = FileRecord(
        kind="private_copy",
        path=_absolute(change.path),
        file=str(link),
        before=safe_write.sha256(leads_to),
        after=safe_write.sha256(change.after),
        mode=f"{stat.S_IMODE(target.st_mode):04o}",
        uid=about.st_uid,
        gid=about.st_gid,
        atime=about.st_atime_ns,
        mtime=about.st_mtime_ns,
        linked=safe_write.sha256(change.before),
    )
    return Planned(record, {"before": leads_to, "after": change.after})


def _copy_within(change: ReplaceFile, private: PrivateFolder, target: os.stat_result) -> Planned:
    """Do the same in a private folder that does not exist yet."""
    about, leads_to = private.link.lstat(), os.fsencode(private.behind(change.path))
    _demand_writable(private.link.parent)
    _demand_keepable_owner(private.link, about)
    record = FileRecord(
        kind="private_copy",
        path=_absolute(change.path),
        file=str(private.file(change.path)),
        before=safe_write.sha256(leads_to),
        after=safe_write.sha256(change.after),
        mode=f"{stat.S_IMODE(target.st_mode):04o}",
        uid=about.st_uid,
        gid=about.st_gid,
        linked=safe_write.sha256(change.before),
        within=str(private.top),
    )
    return Planned(record, {"before": leads_to, "after": change.after})


def _new_file(change: NewFile) -> Planned | None:
    path = Path(_absolute(change.path))
    if path.is_symlink() and not os.path.exists(path):
        raise Refused(f"{path} is a link that leads nowhere; remove it or make its target, then try again")
    if os.path.lexists(path):
        if safe_write.read(_real(path)) == change.content:
            return None
        raise Refused(f"{path} exists already with another content; move it away, then try again")
    return _addition("new_file", path, change.content, change.mode)


def _new_link(change: NewLink) -> Planned | None:
    path = Path(_absolute(change.path))
    if os.path.lexists(path):
        if path.is_symlink() and path.readlink() == change.target:
            return None
        raise Refused(
            f"{path} exists already and is not the link to {change.target}; move it away, then try again"
        )
    if not os.path.exists(os.path.normpath(path.parent / change.target)):
        raise Refused(
            f"{path} would be a broken link: {change.target} does not exist; run verl-doctor fix again "
            "for a new plan"
        )
    return _addition("new_link", path, os.fsencode(change.target), _MODE_OF_LINKS)


def _addition(kind: Literal["new_file", "new_link"], path: Path, content: bytes, mode: int) -> Planned:
    existing = path.parent
    while not os.path.lexists(existing):
        existing = existing.parent
    if not os.path.isdir(existing):
        raise Refused(f"{path} cannot be made: {existing} is not a folder")
    _demand_writable(existing)
    file = _real(existing) / path.relative_to(existing)
    folders = [folder for folder in file.parents if not os.path.exists(folder)]
    record = FileRecord(
        kind=kind,
        path=str(path),
        file=str(file),
        before=None,
        after=safe_write.sha256(content),
        mode=f"{mode:04o}",
        uid=os.geteuid(),
        gid=os.getegid(),
        folders=tuple(str(folder) for folder in reversed(folders)),
    )
    return Planned(record, {"after": content})


def _absolute(path: Path) -> str:
    return os.path.abspath(path)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        if path.is_symlink():
            raise Refused(
                f"{path} is a link that leads nowhere; remove it or make its target, then try again"
            ) from None
        raise Refused(f"{path} no longer exists; run verl-doctor fix again for a new plan") from None
    except OSError as error:
        raise Refused(f"{os_error_text(error)}; repair this path, then try again") from None


def _demand_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise Refused(
            f"{folder} is not writable for user {os.geteuid()}; run this as its owner, or make the "
            "folder writable"
        )
    _demand_changeable(folder)


def _demand_changeable(path: Path) -> None:
    """Refuse a file with the attribute "immutable" or "append only": not even root may replace it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # a folder that is writable but not readable
        return
    try:
        flags = int.from_bytes(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(8))[:4], "little")
    except OSError:  # a file system without such attributes
        flags = 0
    finally:
        os.close(descriptor)
    if flags & _UNCHANGEABLE:
        raise Refused(
            f"{path} is marked immutable or append-only; remove the mark with chattr, then try again"
        )


def _demand_keepable_owner(file: Path, seen: os.stat_result) -> None:
    user = os.geteuid()
    ours = seen.st_uid == user and seen.st_gid in {os.getegid(), *os.getgroups()}
    if user != 0 and not ours:
        raise Refused(
            f"{file} belongs to user {seen.st_uid}, group {seen.st_gid}, and user {user} could not keep "
            "it so; run this as its owner"
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
