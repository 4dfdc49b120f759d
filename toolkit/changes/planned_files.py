"""The records of planned changes of files, as the files are on this disk before any changes."""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.change import NewFile, NewLink, RemoveFile, ReplaceFile
from verl_doctor.toolkit.changes import links, safe_write
from verl_doctor.toolkit.changes.difference import difference
from verl_doctor.toolkit.changes.private_folder import PrivateFolder
from verl_doctor.toolkit.changes.records import FileRecord, Planned
from verl_doctor.toolkit.system.errors import Refused, os_error_text

# The mode of the journal's copy; links themselves have none that could be set.
_MODE_OF_LINKS = 0o644
# linux/fs.h: FS_IOC_GETFLAGS, and the flags "immutable" and "append only".
_GET_FLAGS, _UNCHANGEABLE = 0x80086601, 0x10 | 0x20


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
    record = _of_existing("replace_file", change.path, file, change.before, change.after, seen)
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
    record = _of_existing("removed_file", path, file, change.before, None, seen)
    return Planned(record, {"before": change.before})


def _private_copy(change: ReplaceFile, link: Path, target: os.stat_result) -> Planned:
    """Replace a link by a file of this environment. `target` is what the link leads to."""
    about, leads_to = link.lstat(), os.fsencode(link.readlink())
    _demand_writable(link.parent)
    _demand_keepable_owner(link, about)
    record = _of_existing("private_copy", change.path, link, leads_to, change.after, about)
    record = replace(record, mode=_mode(target), linked=safe_write.sha256(change.before))
    return Planned(record, {"before": leads_to, "after": change.after})


def _copy_within(change: ReplaceFile, private: PrivateFolder, target: os.stat_result) -> Planned:
    """Do the same in a private folder that does not exist yet."""
    about, leads_to = private.link.lstat(), os.fsencode(private.behind(change.path))
    _demand_writable(private.link.parent)
    _demand_keepable_owner(private.link, about)
    file = private.file(change.path)
    record = _of_existing("private_copy", change.path, file, leads_to, change.after, about)
    record = replace(
        record,
        mode=_mode(target),
        atime=None,
        mtime=None,
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


def _of_existing(
    kind: Literal["replace_file", "removed_file", "private_copy"],
    path: Path,
    file: Path,
    before: bytes,
    after: bytes | None,
    about: os.stat_result,
) -> FileRecord:
    """Return the record of a change of what exists, with the owner, mode and times of `about`."""
    return FileRecord(
        kind=kind,
        path=_absolute(path),
        file=str(file),
        before=safe_write.sha256(before),
        after=None if after is None else safe_write.sha256(after),
        mode=_mode(about),
        uid=about.st_uid,
        gid=about.st_gid,
        atime=about.st_atime_ns,
        mtime=about.st_mtime_ns,
    )


def _mode(about: os.stat_result) -> str:
    return f"{stat.S_IMODE(about.st_mode):04o}"


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
