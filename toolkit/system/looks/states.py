"""The state of accessed files and folders, in a form that shows every later change.

What is compared:

- of a file, its size, both times, inode, device and mode: a user cannot set back the change time (ctime);
- of a listed folder, also its times, which change with each entry added, removed or renamed;
- of a folder that was only found, its inode, device, owner and mode;
- of a link that was read, the same as of a file, and of a missing path, the error;
- of a permission check, its result.

Only file systems that keep such times count (`_TICKS`), and no file that changed shortly before it was read:
another change might fall into the same clock tick.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import FileSystem, file_system_of, file_systems

_LOCAL = 2.0  # seconds; kernel and process use the same clock
_REMOTE = 900.0  # seconds; a server's clock may differ from ours
_TICKS = {
    **dict.fromkeys(
        ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay", "rootfs"), _LOCAL
    ),
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "squashfs", "erofs", "iso9660"), _LOCAL),
    **dict.fromkeys(("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "virtiofs", "9p"), _REMOTE),
}
"""The file systems with reliable times, and the minimum age of a change there."""

_STAT = os.stat  # not that of `watching`, which notes an access

Row = list[Any]
"""A folder, the names in it and their digests, and its listing's digest.

They are the names that were followed and a digest of them, then those not followed and a digest.
"""


class CannotBeKeptError(Exception):
    """Something was accessed that cannot be compared later. The message is one sentence."""


def what_changed(record: Any) -> str:
    """Return the first changed path of a record, "" when none has.

    Raises LookupError or TypeError for an invalid record.
    """
    for row in record["rows"]:
        folder, followed, _, links, _, listed = row
        if row_of(folder, followed, links, listed is not None) != row:
            return str(folder)
    for path, mode, answer in record["access"]:
        if os.access(path, mode) is not answer:
            return str(path)
    return ""


Check = Callable[[str, os.stat_result, bool], None]


def row_of(folder: str, followed: str, links: str, listed: bool, check: Check | None = None) -> Row:
    """Return the state of a folder.

    Entries are accessed relative to it: resolving the whole path takes 50% longer.
    """
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        problem = getattr(error, "errno", None) or -1
        return [folder, followed, problem, links, problem, problem if listed else None]
    try:
        of_listing = None
        if listed:
            about = os.fstat(descriptor)
            of_listing = hash(
                (about.st_ino, about.st_dev, about.st_mode, about.st_mtime_ns, about.st_ctime_ns)
            )
            if check is not None:
                check(folder, about, True)
        digests = [
            _digest(folder, names, descriptor, follow, check)
            for names, follow in ((followed, True), (links, False))
        ]
        return [folder, followed, digests[0], links, digests[1], of_listing]
    finally:
        os.close(descriptor)


def _digest(folder: str, names: str, descriptor: int, follow: bool, check: Check | None) -> int:
    states: list[Any] = []
    for name in names.split("/") if names else ():
        try:
            about = _STAT(name, dir_fd=descriptor, follow_symlinks=follow)
        except (OSError, ValueError) as error:
            states.append(getattr(error, "errno", None) or -1)
            continue
        mode = about.st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            states.append(
                (mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
            )
        else:
            states.append((mode, about.st_ino, about.st_dev, about.st_uid, about.st_gid, about.st_rdev))
        if check is not None:
            check(f"{folder}/{name}", about, stat.S_ISREG(mode) or stat.S_ISLNK(mode))
    return hash(tuple(states))  # hash of numbers only, which is the same in every process


class Settled:
    """Checks that files changed long enough before they were read, on file systems with reliable times."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._machine = Machine()
        self._mounts = list(file_systems(self._machine))
        self._latest: dict[int, int] = {}

    def check(self, path: str, about: os.stat_result, has_times: bool) -> None:
        """Raise CannotBeKeptError if a file changed too recently."""
        latest = self._latest.get(about.st_dev)
        if latest is None:
            system = file_system_of(self._machine, path, self._mounts)
            if system is None or system.kind not in _TICKS:
                raise CannotBeKeptError(
                    f"{path} lies on {system.kind if system else 'an unknown file system'}"
                )
            latest = self._latest[about.st_dev] = int((self._began - _TICKS[system.kind]) * 1e9)
        if has_times and max(about.st_mtime_ns, about.st_ctime_ns) > latest:
            raise CannotBeKeptError(f"{path} changed a moment ago")


def unreliable_mounts() -> list[str]:
    """Return where file systems without reliable times are mounted, such as the kernel's own."""
    mounts: Iterable[FileSystem] = file_systems(Machine())
    return [mount.mounted_on for mount in mounts if mount.kind not in _TICKS]
