"""Folders that each belong to one process.

The kernel releases the lock when the process ends, and the next run removes abandoned folders.

They are in /tmp, where any user may create a folder with such a name. So a folder counts as this user's only
if this user owns it and no other user can write to it. Links in it are not followed, and pipes are not
opened. If the file system has no locks, no folder counts as abandoned.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = "owned"
TEMPORARY = "verl-doctor-"
"""Prefix of folders for temporary files.

The number of the process that created the folder and 8 more characters follow it.
"""
_NOWHERE = "no folder for temporary files can be written (TMPDIR, /tmp, /var/tmp): set TMPDIR to one"

_NOT_YET = "not-owned-yet"
_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder for temporary files.

    If this process is killed, `verl-doctor clean` recognises the folder by its name.

    Raises OSError (EROFS) if there is no place for one.
    """
    try:
        return tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}{os.getpid()}-", ignore_cleanup_errors=True)
    except FileNotFoundError:
        raise OSError(errno.EROFS, _NOWHERE) from None


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own this folder, which no other user can write to. Raises OSError if it is not writable."""
    with (folder / _NOT_YET).open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It gets its name after it is locked, so it never exists under that name without an owner.
        (folder / _NOT_YET).rename(folder / LOCK)
        yield


def abandoned(place: Path, prefix: str) -> Iterator[Path]:
    """Yield this user's folders with this prefix whose owner has ended, each locked during inspection."""
    try:
        names = [name for name in os.listdir(place) if name.startswith(prefix)]  # noqa: PTH208 - names alone
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError), _file_in(place / name, LOCK, os.O_RDWR) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # otherwise the former owner has removed it
                yield place / name


def text_in(folder: Path, name: str) -> str:
    """Return the content of a file in this user's folder.

    Raises OSError if it is another user's or not a regular file.
    """
    with _file_in(folder, name, os.O_RDONLY) as file, open(file, "rb", closefd=False) as content:
        return content.read().decode("utf-8", "replace")


@contextlib.contextmanager
def _file_in(folder: Path, name: str, mode: int) -> Iterator[int]:
    """Open a file in a folder, both owned by this user; return its descriptor. Raises OSError."""
    with contextlib.ExitStack() as stack:
        within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFE_FLAGS)
        stack.callback(os.close, within)
        about = os.fstat(within)
        if about.st_uid != os.geteuid() or about.st_mode & _FOR_OTHERS:
            raise PermissionError(f"{folder} may be another user's")
        file = os.open(name, mode | _SAFE_FLAGS, dir_fd=within)
        stack.callback(os.close, file)
        about = os.fstat(file)
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            raise PermissionError(f"{folder}/{name} is not a file of this user")
        yield file
