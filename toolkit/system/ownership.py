"""Whether another user may control a file. Such a file must not influence this user's doctor.

The rules are those of ssh and git (StrictModes in sshd_config(5), safe.directory in git-config(1)).
"""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import pwd
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from verl_doctor.toolkit.text import harmless

# linux/posix_acl_xattr.h
_ACL_HEAD, _ACL_USER, _ACL_GROUP, _ACL_WRITE = 4, 0x02, 0x08, 0x02
# linux/highuid.h: DEFAULT_OVERFLOWUID; and the numbers that the first user namespace maps.
_OVERFLOW, _ALL_USERS = 65534, 2**32 - 1


def why_not_ours(file: Path, *, group_counts: bool) -> str:
    """Return why another user may control a file, or a folder in which it could be replaced.

    "" if it is this user's or root's.

    With `group_counts`, group write permission also counts, except for this user's own group without other
    members.
    """
    real = Path(os.path.realpath(file))
    return why_any_not_ours((file, file.parent, real, real.parent), group_counts=group_counts)


def why_named_not_ours(file: Path) -> str:
    """Do the same for a file that the user named.

    In a sticky folder such as /tmp, other users cannot replace it.
    """
    real = Path(os.path.realpath(file))
    folders = [folder for folder in (file.parent, real.parent) if not _is_sticky(folder)]
    return why_any_not_ours((file, real, *folders), group_counts=True)


def why_any_not_ours(paths: Iterable[Path], *, group_counts: bool, trusted: int = 0) -> str:
    """Do the same for these paths alone, without the folders above them.

    `trusted` is a further trusted user.
    """
    for path in dict.fromkeys(paths):
        with contextlib.suppress(OSError):  # reading it will report that it is missing or unreadable
            if why := why_status_not_ours(path, path.stat(), group_counts=group_counts, trusted=trusted):
                return why
    return ""


def why_status_not_ours(
    path: Path,
    about: os.stat_result,
    *,
    group_counts: bool = True,
    trusted: int = 0,
    opened: int | None = None,
) -> str:
    """Do the same for a file or folder `opened` as a descriptor. The sentence names its owner and mode."""
    shown = f"(owner {user_name(about.st_uid)}, mode {stat.S_IMODE(about.st_mode):04o})"
    if about.st_uid not in {0, os.geteuid(), trusted}:
        return f"{path} belongs to user {about.st_uid} {shown}"
    if (
        about.st_uid not in {0, trusted}
        and _may_be_unmapped(about.st_uid)
        and not _acts_as_owner(path, about, opened)
    ):
        return f"{path} belongs to a user without a number in this user namespace {shown}"
    if about.st_mode & stat.S_IWOTH:
        return f"anybody may write to {path} {shown}"
    if (
        about.st_mode & stat.S_IWGRP
    ):  # with an access list, these bits are the mask, without which no entry of the list allows writing
        if listed := _listed_writer(path if opened is None else opened, trusted, group_counts=group_counts):
            return f"the access list of {path} lets {listed} write {shown}"
        if group_counts and not _is_own(about.st_gid):
            return f"group {about.st_gid} may write to {path} {shown}"
    return ""


@functools.cache
def _may_be_unmapped(user: int) -> bool:
    """Return whether the kernel shows this number for all users that the user namespace lacks.

    The user namespace is that of this process (user_namespaces(7)).
    """
    try:
        shown = int(Path("/proc/sys/fs/overflowuid").read_bytes())
        mapped = [int(line.split()[2]) for line in Path("/proc/self/uid_map").read_bytes().splitlines()]
    except (OSError, ValueError, IndexError):
        shown, mapped = _OVERFLOW, []
    return user == shown and sum(mapped) < _ALL_USERS


def _acts_as_owner(path: Path, about: os.stat_result, opened: int | None) -> bool:
    """Return whether the kernel treats this process as the owner.

    Only the owner may read without changing the access time (open(2)).
    """
    if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
        return False
    place = path if opened is None else f"/proc/self/fd/{opened}"
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOATIME | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.path.samestat(os.fstat(descriptor), about)
    finally:
        os.close(descriptor)


def _listed_writer(file: Path | int, trusted: int, *, group_counts: bool) -> str:
    """Return another user or group with write permission in a file's access list, or "" (acl(5))."""
    try:
        entries = os.getxattr(file, "system.posix_acl_access")[_ACL_HEAD:]
    except OSError:  # no list, or a file system without them
        return ""
    for kind, rights, number in struct.iter_unpack("<HHI", entries[: len(entries) // 8 * 8]):
        if not rights & _ACL_WRITE:
            continue
        if kind == _ACL_USER and number not in {0, os.geteuid(), trusted}:
            return f"user {number}"
        if kind == _ACL_GROUP and group_counts and not _is_own(number):
            return f"group {number}"
    return ""


def next_step(path: Path, *inside: Path) -> str:
    """Return what to do about an untrusted file or folder, or about files `inside` it."""
    for place in (path, *inside):
        with contextlib.suppress(OSError):
            owner = place.stat().st_uid
            if owner not in {0, os.geteuid()}:
                return f"run this as user {owner}, or move {path} away"
    return f"inspect it, and if you trust it: chmod -R go-w {path}"


@functools.cache
def warn_once(sentence: str) -> None:
    """Print a sentence on stderr, once per run."""
    print(f"verl-doctor: {harmless(sentence)}", file=sys.stderr)


def _is_sticky(folder: Path) -> bool:
    try:
        about = folder.stat()
    except OSError:
        return False
    return bool(about.st_mode & stat.S_ISVTX) and about.st_uid in {0, os.geteuid()}


def user_name(number: int) -> str:
    """Return the name of a user; the number itself if the machine has no name for it."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _is_own(group: int) -> bool:
    """Return whether this user is the only member of a group, as distributions with umask 002 assume."""
    try:
        user, named = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    own = user.pw_gid == group and user.pw_name == named.gr_name
    return own and not set(named.gr_mem) - {user.pw_name}
