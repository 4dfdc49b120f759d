"""Folders with one owner each: the kernel drops the lock when the process ends, and the next run removes abandoned ones.

They lie where anybody may make a folder of such a name (/tmp). So one counts as this user's only when he owns it and nobody else may
write into it, and no link or pipe in it is followed or waited for. Where the file system has no locks, nothing is known to be abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

LOCK = "owned"
_NOT_YET = "not-owned-yet"
_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own this folder, which nobody else may write into. Raises OSError when nothing can be written into it."""
    with (folder / _NOT_YET).open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It has its name from when it is locked: nobody finds it without an owner before.
        (folder / _NOT_YET).rename(folder / LOCK)
        yield


def abandoned(place: Path, prefix: str) -> Iterator[Path]:
    """This user's folders there whose name begins so and whose owner has ended; nobody else gets one while it is looked at."""
    try:
        names = [name for name in os.listdir(place) if name.startswith(prefix)]  # noqa: PTH208 - names alone
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError), _file_in(place / name, LOCK, os.O_RDWR) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # else whoever had the lock before has removed it all
                yield place / name


def text_in(folder: Path, name: str) -> str:
    """What a file in a folder of this user's says. Raises OSError when it is another's, or no file."""
    with _file_in(folder, name, os.O_RDONLY) as file, open(file, "rb", closefd=False) as content:
        return content.read().decode("utf-8", "replace")


@contextlib.contextmanager
def _file_in(folder: Path, name: str, mode: int) -> Iterator[int]:
    """A descriptor of a file in a folder, both this user's own. Raises OSError."""
    with contextlib.ExitStack() as stack:
        within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _CAREFULLY)
        stack.callback(os.close, within)
        about = os.fstat(within)
        if about.st_uid != os.geteuid() or about.st_mode & _FOR_OTHERS:
            raise PermissionError(f"{folder} may be another user's work")
        file = os.open(name, mode | _CAREFULLY, dir_fd=within)
        stack.callback(os.close, file)
        about = os.fstat(file)
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            raise PermissionError(f"{folder}/{name} is not a file of this user")
        yield file
