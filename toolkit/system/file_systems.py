"""The file system of a path, read from the kernel's list of mounts."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from verl_doctor.toolkit.machine import Machine

# File systems that several machines share, as /proc/filesystems names them. FUSE has the actual type in the
# subtype (fuse.sshfs).
_SHARED = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "afs",
        "9p",
        "orangefs",
        "pvfs2",
        "glusterfs",
        "gfs2",
        "ocfs2",
        "wekafs",
        "panfs",
        "vastnfs",
    ]
)
_SHARED_FUSE = re.compile(
    r"fuse\.(?!(?:snapfuse|overlayfs|fuse-overlayfs|squashfuse|portal|lxcfs|gvfsd)).*|fuseblk\.ceph"
)
# File systems in which the kernel presents itself as files: no file can be created there, whatever the
# permissions.
_OF_THE_KERNEL = frozenset(
    ["proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "devpts", "bpf", "fusectl"]
)
# The first word of statfs(2): MQUEUE_MAGIC and OVERLAYFS_SUPER_MAGIC.
_MQUEUE, _OVERLAY = 0x19800202, 0x794C7630
_ROOM = 512  # bytes, more than any statfs structure has
_IN_MEMORY = frozenset(["tmpfs", "ramfs", "devtmpfs"])
Obstacle = Literal[
    "", "a file is in the way", "no permission to write", "read-only", "of the kernel", "over the disk quota"
]
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class FileSystem:
    """A mount: its place, kind and device. `shared` means that other machines may see the same files.

    `root` is the folder of the file system that is mounted there, and `options` are the mount's and the file
    system's own. `number` is the device's, "8:1".
    """

    mounted_on: str
    kind: str
    device: str
    read_only: bool = False
    root: str = "/"
    options: tuple[str, ...] = ()
    number: str = ""

    @property
    def in_memory(self) -> bool:
        """Whether its files are kept only in memory."""
        return self.kind in _IN_MEMORY

    @property
    def shared(self) -> bool:
        """Whether it is of a kind that several machines mount at once."""
        return self.kind in _SHARED or _SHARED_FUSE.fullmatch(self.kind) is not None

    @property
    def of_kernel(self) -> bool:
        """Whether its files are the kernel's own, and no others can be created there."""
        return self.kind in _OF_THE_KERNEL


@dataclass(frozen=True)
class Space:
    """The space of a file system, in bytes; this user may fill `free` of it.

    `inodes`, and of them `inodes_free`, are None where a file system creates them on demand.
    """

    size: int
    free: int
    inodes: int | None = None
    inodes_free: int | None = None


def space_of(place: Path) -> Space | None:
    """Return the space of the file system that holds a file or folder; None when it is not reported."""
    try:
        state = os.statvfs(place)
    except OSError:
        return None
    inodes = (state.f_files, state.f_favail) if state.f_files else (None, None)
    return Space(state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize, *inodes)


def nearest(machine: Machine, path: str) -> Path:
    """Return a path of the machine, or the nearest existing folder above it."""
    place = machine.at(path)
    return next(part for part in (place, *place.parents) if os.path.exists(part))


def may_write(place: Path) -> bool:
    """Return whether this user can create files and folders in it, by trying."""
    return os.path.isdir(place) and not why_refused(place)


def why_refused(folder: Path) -> str:
    """Return the kernel's reason for refusing to create a file in a folder; "" if it does not refuse.

    The test file has no name (O_TMPFILE), so nothing appears in the folder, not even briefly. Mount options
    and permissions do not cover quotas, ACLs and read-only devices, so they are read only if the file system
    does not support such files.
    """
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except AttributeError:  # not Linux
        return _by_permissions(folder)
    except OSError as error:
        if error.errno in _REFUSING:
            return os.strerror(error.errno)
        return _by_permissions(folder)
    return ""


_REFUSING = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT})


def _by_permissions(folder: Path) -> str:
    return "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def why_not_writable(machine: Machine, path: str) -> str:
    """Return why no file can be created at a path, naming the folder; "" if nothing prevents it."""
    folder, trouble = obstacle(machine, path)
    if trouble == "of the kernel":
        system = file_system_of(machine, folder)
        return (
            f"{folder} is the kernel's own ({system.kind if system else ''}), where no files can be created"
        )
    return {
        "": "",
        "a file is in the way": f"{folder} is not a folder",
        "read-only": f"{folder} is mounted read-only",
        "no permission to write": f"user {os.geteuid()} cannot write to {folder}",
        "over the disk quota": f"the disk quota of {folder} is used up",
    }[trouble]


def obstacle(machine: Machine, path: str) -> tuple[str, Obstacle]:
    """Return the nearest existing part of a path, and what prevents creating files there; "" if nothing."""
    # A dangling link also exists.
    nearest_part = next(
        str(part) for part in (Path(path), *Path(path).parents) if os.path.lexists(machine.at(str(part)))
    )
    place = machine.at(nearest_part)
    if not os.path.isdir(place):
        return nearest_part, "a file is in the way"
    system = file_system_of(machine, nearest_part)
    if system is not None and system.of_kernel:
        return nearest_part, "of the kernel"
    refused = why_refused(place)
    if not refused:
        return nearest_part, ""
    if refused == os.strerror(errno.EDQUOT):
        return nearest_part, "over the disk quota"
    read_only = system is not None and system.read_only
    return nearest_part, "read-only" if read_only else "no permission to write"


def file_system_of(
    machine: Machine, path: str, mounts: Iterable[FileSystem] | None = None, *, follow: bool = True
) -> FileSystem | None:
    """Return the mount of a path, whether or not the path exists; None if the kernel lists no mounts.

    Callers with many paths pass all `mounts`. Without `follow`, links are not followed, and the file system
    itself is not accessed.
    """
    real = os.path.realpath(path) if follow and machine.root == Path("/") else path
    best = None
    for mount in file_systems(machine) if mounts is None else mounts:
        # Of two mounts on the same folder, the later hides the earlier.
        inside = f"{real}/".startswith(f"{mount.mounted_on.rstrip('/')}/")
        if inside and (best is None or len(mount.mounted_on) >= len(best.mounted_on)):
            best = mount
    return best


def is_message_queue(path: str) -> bool:
    """Return whether a path is a POSIX message queue.

    That is a regular file of a file system that need not be mounted anywhere.
    """
    return _magic(path) == _MQUEUE


def is_overlay(path: str) -> bool:
    """Return whether a path is in an overlay, which may be unmounted too (open_tree(2), umount2(2)).

    It need not be mounted anywhere either.
    """
    return _magic(path) == _OVERLAY


def _magic(path: str) -> int:
    """Return the number of the kind of a path's file system; 0 if it is not reported."""
    about = ctypes.create_string_buffer(_ROOM)
    if ctypes.CDLL(None).statfs(os.fsencode(path), about):
        return 0
    return int.from_bytes(about.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def read_ahead(machine: Machine, number: str) -> int | None:
    """Return the kernel's read-ahead in bytes on the device with this number ("8:1"), or None if unreported.

    This is the file system's own backing device, which network file systems have too; a partition has its
    disk's.
    """
    for path in (
        f"/sys/class/bdi/{number}/read_ahead_kb",
        f"/sys/dev/block/{number}/queue/read_ahead_kb",
        f"/sys/dev/block/{number}/../queue/read_ahead_kb",
    ):
        text = (machine.read(path) or "").strip()
        if number and text.isdecimal():
            return int(text) * 1024
    return None


def file_systems(machine: Machine) -> Iterator[FileSystem]:
    """Yield all mounts that this process sees, in the order they were made (proc_pid_mountinfo(5))."""
    for line in (machine.read("/proc/self/mountinfo") or "").splitlines():
        front, separator, back = line.partition(" - ")
        fields, rest = front.split(" "), back.split(" ")
        if separator and len(fields) > 5 and len(rest) > 1:
            own = fields[5].split(",")
            options = (*own, *(rest[2].split(",") if len(rest) > 2 else ()))
            yield FileSystem(
                _plain(fields[4]),
                rest[0],
                _plain(rest[1]),
                "ro" in options,
                _plain(fields[3]),
                options,
                fields[2],
            )


def overlay_layers(mounts: str) -> Iterator[str]:
    """Yield the folders of which the overlays in a list of /proc/PID/mountinfo consist.

    They are as whoever mounted the overlays wrote them.
    """
    for line in mounts.splitlines():
        words = line.partition(" - ")[2].split(" ", 2)
        if words[0] == "overlay" and len(words) > 2:
            for option in words[2].split(","):
                name, _, value = option.partition("=")
                if name.rstrip("+") in ("lowerdir", "datadir", "upperdir", "workdir"):
                    yield from filter(None, _plain(value).split(":"))


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
