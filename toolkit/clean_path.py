"""Removing a file or folder that a dead job has left, and nothing else.

It is judged anew, moved aside within its folder under a name that nobody knows, judged once more, and only then removed:
whoever came to it before it was moved is seen, and whoever comes later does not find it. All goes through open descriptors, follows no
link and leaves no mount.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from verl_doctor.toolkit.fact_left_files import LeftFile, LeftFiles, look
from verl_doctor.toolkit.left_contents import contents_of
from verl_doctor.toolkit.left_file_judgement import GRACE, judged
from verl_doctor.toolkit.left_places import BEING_REMOVED, Place, place_at
from verl_doctor.toolkit.leftover import Kept, Leftover, Outcome, RemovePath
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.open_folder import entries, mount_of, opened, reached
from verl_doctor.toolkit.refused import said_by
from verl_doctor.toolkit.text import counted

_NO_REPLACE = 1  # RENAME_NOREPLACE of renameat2(2)
_LONGEST_NAME = 255
_FOLDERS = frozenset({"session folder", "spill folder"})
_TOGETHER = 100
_LATEST = "session_latest"


class _Stays(Exception):  # noqa: N818 - it is an answer, not a defect
    """Why a thing is not removed. Nothing was changed."""


def remove(leftovers: Iterable[Leftover], machine: Machine) -> Iterator[Outcome]:
    """Remove each if it is the very one that was judged, and is a leftover still. Raises no OSError.

    All processes are looked through again before each folder, and before every hundred files or sockets: of those the
    kernel itself says, at the moment of their removal, that nobody has them open.
    """
    for is_folder, same in groupby(leftovers, key=lambda one: one.kind in _FOLDERS):
        waiting = list(same)
        while waiting:
            together = waiting[: 1 if is_folder else _TOGETHER]
            del waiting[: len(together)]
            now = look([place for one in together if (place := place_at(one.name))], machine)
            for one in together:
                yield _removed(one, now, machine)


def _removed(leftover: Leftover, now: LeftFiles, machine: Machine) -> Outcome:
    removal, place = leftover.removal, place_at(leftover.name)
    seen = next((one for one in now.files if one.path == leftover.name), None)
    if not isinstance(removal, RemovePath) or place is None or seen is None:
        return Outcome(leftover, "kept", "it has gone")
    try:
        _demand_leftover(seen, removal, now)
        with reached(str(machine.root), place.folder) as folder:
            left = _remove_aside(place, seen, folder, machine)
    except _Stays as stays:
        return Outcome(leftover, "kept", str(stays))
    except OSError as error:
        return Outcome(leftover, "not removed", said_by(error))
    return Outcome(leftover, "partly removed", left) if left else Outcome(leftover, "removed")


def _demand_leftover(seen: LeftFile, removal: RemovePath, now: LeftFiles) -> None:
    """Judge anew what was looked at anew."""
    if (seen.device, seen.inode) != (removal.device, removal.inode):
        raise _Stays("something else lies there now")
    if seen.changed != removal.changed:
        raise _Stays("it was changed since it was looked at")
    _demand_proof(seen, now, GRACE)


def _demand_proof(seen: LeftFile, among: LeftFiles, grace: float) -> None:
    verdict = judged(seen, among, grace=grace)
    if isinstance(verdict, Kept):
        raise _Stays(verdict.why)


def _remove_aside(place: Place, seen: LeftFile, folder: int, machine: Machine) -> str:
    """Move it aside, look there, remove it. Returns what could not be removed, "" when all is gone."""
    aside = f"{BEING_REMOVED}{secrets.token_hex(8)}-{place.name}"
    if len(aside) > _LONGEST_NAME:
        raise _Stays("its name is too long")
    _demand_unused(place.entry, seen, folder)
    _rename(place.entry, aside, folder)
    try:
        about = _demand_unused(aside, seen, folder)
        if seen.type == "folder":
            _demand_unneeded(replace(place, entry=aside), seen, machine)
    except BaseException as error:
        _put_back(aside, place, folder, error)
        raise
    failed: list[str] = []
    _erase(aside, folder, about, mount_of(folder), failed)
    if not failed:
        _erase_link_to(place.name, folder)
        return ""
    more = f" and {counted(len(failed) - 1, 'more entry', 'more entries')}" if len(failed) > 1 else ""
    return f"{failed[0]}{more} could not be removed; what is left lies at {place.folder}/{aside}"


def _demand_unused(name: str, seen: LeftFile, folder: int) -> os.stat_result:
    """It is the very one, and the kernel says that nobody uses anything in it. This is quick: nobody has waited long for it."""
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if (about.st_dev, about.st_ino) != (seen.device, seen.inode):
        raise _Stays("something else was put there")
    contents = contents_of(name, folder)
    if contents.used:
        raise _Stays(f"{contents.used.partition('/')[2] or 'it'} is in use since a moment ago")
    return about


def _demand_unneeded(aside: Place, seen: LeftFile, machine: Machine) -> None:
    """Nobody has come to a folder, or begun to speak of it, since it was looked at."""
    moved = look([aside], machine)
    if not moved.files:
        raise _Stays("it was moved away meanwhile")
    _demand_proof(_as_before(moved.files[0], seen), moved, 0.0)


def _as_before(moved: LeftFile, seen: LeftFile) -> LeftFile:
    """What was seen aside, without the change that moving it was."""
    maker = seen.maker if seen.maker == "started later" else moved.maker
    return replace(moved, latest=seen.latest, maker=maker)


def _erase(name: str, folder: int, about: os.stat_result, mount: str, failed: list[str]) -> None:
    """Remove one entry of an open folder, and first what is in it. What cannot be removed is named in `failed`."""
    try:
        if not stat.S_ISDIR(about.st_mode):
            os.unlink(name, dir_fd=folder)
            return
        with opened(name, folder) as inner:
            # Ray lets everybody write into its folders: /tmp/ray has no sticky bit.
            if not os.path.samestat(os.fstat(inner), about) or mount_of(inner) != mount:
                failed.append(f"{name}: something else was put there")
                return
            os.fchmod(inner, stat.S_IRWXU)  # it may have been made read-only
            for entry, its in entries(inner):
                _erase(entry, inner, its, mount, failed)
        if not failed:
            os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.append(said_by(error) if error.filename else f"{name}: {error.strerror}")


def _erase_link_to(session: str, folder: int) -> None:
    """Remove Ray's link to its last session when it leads to this one. A Ray that starts makes its own anew, under the same name."""
    aside = f"{BEING_REMOVED}{secrets.token_hex(8)}-{_LATEST}"
    with contextlib.suppress(OSError):
        if _leads_to(_LATEST, folder) != session:
            return
        _rename(_LATEST, aside, folder)
        if _leads_to(aside, folder) == session:
            os.unlink(aside, dir_fd=folder)
        else:
            _rename(aside, _LATEST, folder)


def _leads_to(link: str, folder: int) -> str:
    """The name of what a link of this user's leads to. Raises OSError when it is none."""
    owner = os.stat(link, dir_fd=folder, follow_symlinks=False).st_uid
    return Path(os.readlink(link, dir_fd=folder)).name if owner == os.geteuid() else ""


def _put_back(aside: str, place: Place, folder: int, cause: BaseException) -> None:
    """Give it its name again. Raises _Stays when somebody has taken that meanwhile."""
    try:
        _rename(aside, place.entry, folder)
    except FileNotFoundError:
        return
    except OSError as error:
        where = (
            f"it lies at {place.folder}/{aside} now, because its name cannot be given back: {error.strerror}"
        )
        raise _Stays(f"{cause}; {where}") from error


def _rename(old: str, new: str, folder: int) -> None:
    """Rename within an open folder, and replace nothing. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):  # glibc before 2.28, musl
        if _is_there(new, folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
        return
    if libc.renameat2(folder, os.fsencode(old), folder, os.fsencode(new), _NO_REPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), old)


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
