"""Folders as open descriptors.

They still refer to the same folder if its path is replaced by a link or another folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOUNT = re.compile(r"^mnt_id:\s+(\d+)$", re.MULTILINE)
_ON_THE_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_THERE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(name: str, folder: int | None = None) -> Iterator[int]:
    """Open a folder in an open folder for this block. A link is not followed. Raises OSError."""
    descriptor = os.open(name, _THERE, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def reached(root: str, path: str) -> Iterator[int]:
    """Open the folder at an absolute path below `root`, following no link on the way. Raises OSError."""
    descriptor = os.open(root, _ON_THE_WAY & ~os.O_NOFOLLOW)
    try:
        for step in filter(None, path.split("/")):
            nearer = os.open(step, _ON_THE_WAY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = nearer
        with opened(".", descriptor) as folder:
            yield folder
    finally:
        os.close(descriptor)


def entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the entries of an open folder, except for those that vanish meanwhile. Raises OSError."""
    for name in os.listdir(folder):
        try:
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # noqa: PERF203 - each by itself
            continue


def mount_of(folder: int) -> str:
    """Return the mount number of an open folder. It differs between two mounts of the same disk."""
    found = _MOUNT.search(Path(f"/proc/self/fdinfo/{folder}").read_text("utf-8"))
    return found[1] if found else ""
