"""Copies a descriptor of another process (pidfd_getfd(2), Linux 5.6) to inspect what it refers to.

The process is not changed.
"""

from __future__ import annotations

import ctypes
import functools
import os

from verl_doctor.toolkit.system.process_table import own_number

_PIDFD_GETFD = 438  # on all architectures


def copy_of(pid: int, number: int) -> int | None:
    """Return a descriptor of this process for the same open file; None if the kernel refuses."""
    if own_number() != os.getpid():
        return None  # /proc belongs to another namespace, where the same number means another process
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        copy: int = _libc().syscall(_PIDFD_GETFD, held, number, 0)
    finally:
        os.close(held)
    return None if copy < 0 else copy


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
