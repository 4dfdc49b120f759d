"""Admits one doctor at a time by an exclusive lock on a journal's folder.

The kernel releases the lock when its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.system.errors import Refused

_NAME = "lock"
_PAUSE = 0.05
TIMEOUT = 10.0
"""Seconds to wait for another doctor that uses the same journal."""


@contextlib.contextmanager
def exclusive(home: Path, patience: float = TIMEOUT) -> Iterator[int]:
    """Hold the lock of the journal in the existing folder `home`, waiting up to `patience` seconds for it.

    Yields the lock's file descriptor: a child process that inherits it also holds the lock. Raises Refused,
    naming the holder, if the wait was in vain, and OSError if the file system has no locks.
    """
    descriptor = _locked(home, patience)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(
                descriptor, 0o600
            )  # the umask may have removed permissions, and older versions made it readable
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {platform.node()}\n".encode(), 0)
        except OSError as error:  # the system calls name no file
            error.filename = str(home / _NAME)
            raise
        yield descriptor
    except BaseException:
        _remove_empty(home)
        raise
    finally:
        os.close(descriptor)


def _remove_empty(home: Path) -> None:
    """Remove a journal in which nothing but the lock is, as after the first attempt on a full disk."""
    with contextlib.suppress(OSError):
        if os.listdir(home) == [_NAME]:  # noqa: PTH208 - names are enough
            (home / _NAME).unlink()
            home.rmdir()


def holder(home: Path) -> str | None:
    """Return the current holder of the lock ("4711 on node7"), or None if it is free."""
    try:
        descriptor = os.open(home / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_in(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _locked(home: Path, patience: float) -> int:
    """Return a descriptor of the locked file.

    Another doctor may have removed it with its empty journal: then it is made again.
    """
    until = time.monotonic() + patience
    while True:
        descriptor = os.open(home / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _wait_for(descriptor, home, until)
            if _is_in_place(descriptor, home):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_in_place(descriptor: int, home: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(home / _NAME))
    except FileNotFoundError:
        return False


def _wait_for(descriptor: int, home: Path, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # noqa: PERF203 - it waits anyway
            if time.monotonic() >= until:
                raise Refused(
                    f"{home} is in use: process {_written_in(descriptor)} is changing this environment; "
                    f"let it finish, then run this again"
                ) from None
            time.sleep(_PAUSE)
        else:
            return


def _written_in(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "(not yet named)"
