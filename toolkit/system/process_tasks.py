"""The threads of a process.

Each may have its own descriptors, working folder and root, and may outlive the first thread.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
from collections.abc import Callable
from typing import TypeVar

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import own_number

_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_FILES, _PLACES = 2, 3  # KCMP_FILES and KCMP_FS of kcmp(2)
_ENDED = ("Z", "X")
_TRIES = 20
_T = TypeVar("_T")


def views(pid: int, machine: Machine) -> tuple[str, ...]:
    """Return folders of /proc that together show all descriptors, working folders and roots of a process.

    Nearly all processes have one such folder; ended ones have none. Raises OSError if the threads may not be
    compared.
    """
    tasks = sorted(map(int, os.listdir(machine.at(f"/proc/{pid}/task"))), key=lambda task: task != pid)  # noqa: PTH208
    if len(tasks) == 1:
        return (f"/proc/{pid}",)
    found: list[int] = []
    for task in tasks:
        folder = f"/proc/{pid}/task/{task}"
        if task == pid and has_ended(folder, machine):
            continue
        if not any(_are_alike(pid, task, other, machine) for other in (*found[:1], *found[1:][-1:])):
            found.append(task)
    return tuple(f"/proc/{pid}" if task == pid else f"/proc/{pid}/task/{task}" for task in found)


def steadily(pid: int, machine: Machine, look: Callable[[], _T]) -> _T:
    """Inspect a process, starting over if one of its threads ends meanwhile.

    Raises FileNotFoundError if the process has ended, and another OSError if it may not be inspected or keeps
    changing.
    """
    for _ in range(_TRIES):
        try:
            return look()
        except (FileNotFoundError, ProcessLookupError) as error:  # noqa: PERF203 - each try by itself
            if not _is_alive(pid, machine):
                raise FileNotFoundError(error.errno, "the process has ended") from error
    raise BlockingIOError(errno.EAGAIN, "its threads change too fast")


def _is_alive(pid: int, machine: Machine) -> bool:
    """Return whether any thread of a process is alive."""
    try:
        tasks = os.listdir(machine.at(f"/proc/{pid}/task"))  # noqa: PTH208 - names alone
    except OSError:
        return False
    return any(not has_ended(f"/proc/{pid}/task/{task}", machine) for task in tasks)


def has_ended(folder: str, machine: Machine) -> bool:
    """Return whether the thread or process of this /proc folder has ended but is still listed."""
    fields = (machine.read(f"{folder}/stat") or "").rpartition(")")[2].split()
    return not fields or fields[0] in _ENDED


def _are_alike(pid: int, task: int, other: int, machine: Machine) -> bool:
    """Return whether two threads share their descriptors and folders.

    Raises OSError where this may not be inspected.
    """
    if own_number() == os.getpid():
        compared = [_compare(task, other, kind) for kind in (_FILES, _PLACES)]
        if None not in compared:
            return compared == [0, 0]
    try:
        return _shown(pid, task, machine) == _shown(pid, other, machine)
    except FileNotFoundError:
        return False  # one of them has ended


def _shown(pid: int, task: int, machine: Machine) -> tuple[object, ...]:
    """Return what identifies a thread's folders and descriptors, for a kernel that does not compare them."""
    folder = f"/proc/{pid}/task/{task}"
    links = [os.readlink(machine.at(f"{folder}/{name}")) for name in ("cwd", "root")]  # noqa: PTH115
    return (*links, sorted(os.listdir(machine.at(f"{folder}/fd"))))  # noqa: PTH208


def _compare(first: int, other: int, kind: int) -> int | None:
    """Return 0 if both share what is compared, None if it cannot be (seccomp, permissions, no kcmp).

    The kernel then does not compare.
    """
    if _KCMP is None:
        return None
    result: int = _libc().syscall(_KCMP, first, other, kind, 0, 0)
    return None if result < 0 else result


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
