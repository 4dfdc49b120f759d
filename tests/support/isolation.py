"""A separate /dev/shm and /tmp/ray for tests, so other users' files there and missing permissions have no effect."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from pathlib import Path

_CLONE_NEWNS = 0x00020000  # sched.h
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 1 << 18, 2  # sys/mount.h
_NAME = "verl-doctor-tests"
_COVERED = (Path("/dev/shm"), Path("/tmp/ray"))


def isolate() -> None:
    """Move this process and its children to a mount namespace with empty folders in place of the shared ones.

    It takes a user who may mount. For others everything stays as it is: a namespace of users would change who owns
    what, which tests look at.
    """
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
        for folder in _COVERED:
            if folder.is_dir():
                _call("mount", _NAME.encode(), os.fsencode(folder), b"tmpfs", 0, b"mode=1777")


def memory() -> Path | None:
    """Return a new folder in memory for this process and its children; None if this user may not mount.

    The disk is what most of the small tests would wait for: they make and remove ten thousand folders, and the doctor syncs.
    """
    if not is_isolated():
        return None
    folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
    _call("mount", _NAME.encode(), os.fsencode(folder), b"tmpfs", 0, b"mode=700")
    return folder


def forget(folder: Path) -> None:
    """Remove what `memory` created."""
    with contextlib.suppress(OSError):
        _call("umount2", os.fsencode(folder), _MNT_DETACH)
        folder.rmdir()


def is_isolated() -> bool:
    """Return whether this process has a /dev/shm that was mounted for the tests."""
    return any(
        line.split()[0] == _NAME and line.split()[1] == "/dev/shm"
        for line in Path("/proc/self/mounts").read_text().splitlines()
    )


def _call(function: str, *arguments: bytes | int | None) -> None:
    """Call a function of the C library that returns 0 unless it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    if getattr(libc, function)(*values):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
