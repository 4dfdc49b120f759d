"""The contents of a leftover, read through descriptors.

Swapping or linking paths meanwhile thus cannot redirect the reader.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field

from verl_doctor.toolkit.system.in_use import InUse, bound_anywhere, open_anywhere
from verl_doctor.toolkit.system.open_folder import entries, mount_of, opened

_BLOCK = 512  # bytes, the unit of st_blocks
_DEEPEST = 200  # nested folders; each takes one open descriptor
# A job's `working_dir` or `py_modules`: Ray unpacks them here in one go.
_UNPACKED = re.compile(r"(?:^|/)runtime_resources/(?:working_dir|py_modules)_files/[^/]+/(?!.*__pycache__).")
_WHILE_UNPACKED = 60 * 10**9  # nanoseconds
_NODE = re.compile(r"ray_spilled_objects_([0-9a-f]{16,})")


@dataclass
class Contents:
    """What was seen in one file, socket or folder.

    Each text is the first entry of that kind, "" if there is none.

    `size` is in bytes as the file system counts them, `latest` the last change of anything, in nanoseconds
    since the epoch. `used` is open or bound by some process; the state of `undetermined` is unknown.
    `foreign` belongs to another user, `mounted` is on another mount, `closed` cannot be read. `strange` has
    an unexpected name. `nodes` are the Ray nodes whose spilled objects are in it. `inodes` are device and
    inode of everything in it.
    """

    size: int = 0
    files: int = 0
    sockets: int = 0
    latest: int = 0
    used: str = ""
    undetermined: str = ""
    foreign: str = ""
    mounted: str = ""
    closed: str = ""
    strange: str = ""
    nodes: set[str] = field(default_factory=set)
    inodes: set[tuple[int, int]] = field(default_factory=set)
    _unpacked: list[tuple[int, str]] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def count(self, path: str, about: os.stat_result) -> None:
        """Add one entry. A file with several names counts once."""
        self.latest = max(self.latest, about.st_ctime_ns)
        self.inodes.add((about.st_dev, about.st_ino))
        if about.st_uid != os.geteuid():
            self.foreign = self.foreign or path
        if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
            if (about.st_dev, about.st_ino) in self._seen:
                return
            self._seen.add((about.st_dev, about.st_ino))
        self.size += about.st_blocks * _BLOCK
        if stat.S_ISREG(about.st_mode):
            self.files += 1
            if _UNPACKED.search(path):
                self._unpacked.append((about.st_ctime_ns, path))

    def add(self, path: str, answer: InUse) -> None:
        """Record whether one entry is in use."""
        if answer == "yes":
            self.used = self.used or path
        elif answer == "undetermined":
            self.undetermined = self.undetermined or path

    @property
    def written(self) -> str:
        """Return the last file that a job wrote in addition to its unpacked sources, "" if it wrote none."""
        if not self._unpacked:
            return ""
        (first, _), (last, path) = min(self._unpacked), max(self._unpacked)
        return path if last - first > _WHILE_UNPACKED else ""


def contents_of(name: str, folder: int, expected: re.Pattern[str] | None = None) -> Contents:
    """Read the entry of this name in an open folder, until something in it is in use.

    Raises OSError if it does not exist.

    `expected` matches all paths within it that are not strange; None if no path is strange.
    """
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    found = Contents()
    _look(name, name, folder, about, found, expected, depth=0)
    return found


def _look(
    path: str,
    name: str,
    folder: int,
    about: os.stat_result,
    found: Contents,
    expected: re.Pattern[str] | None,
    depth: int,
) -> None:
    found.count(path, about)
    if depth and expected and not expected.fullmatch(path.partition("/")[2]):
        found.strange = found.strange or path
    if stat.S_ISREG(about.st_mode):
        found.add(path, open_anywhere(name, folder))
    elif stat.S_ISSOCK(about.st_mode):
        found.sockets += 1
        found.add(path, bound_anywhere(name, folder))
    elif stat.S_ISFIFO(
        about.st_mode
    ):  # whoever waits for its other end has no descriptor yet, and is counted nowhere
        found.add(path, "undetermined")
    elif stat.S_ISDIR(about.st_mode):
        if node := _NODE.fullmatch(name):
            found.nodes.add(node[1])
        if depth == _DEEPEST:
            found.closed = found.closed or path
            return
        try:
            with opened(name, folder) as inner:
                if mount_of(inner) != mount_of(folder):
                    found.mounted = found.mounted or path
                    return
                for entry, its in entries(inner):
                    if found.used:
                        return
                    _look(f"{path}/{entry}", entry, inner, its, found, expected, depth + 1)
        except OSError:
            found.closed = found.closed or path
