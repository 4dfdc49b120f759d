"""Namespaces of the kernel for the construction.

Other processes cannot be reached, and outside its folder nothing can be changed.

A user who is not root needs a user namespace for that, which some systems and most containers do not permit.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

_USER, _NETWORK, _MOUNTS, _PROCESSES = 0x10000000, 0x40000000, 0x00020000, 0x20000000  # unshare(2)
_IPC, _HOST_NAME = 0x08000000, 0x04000000
_BIND, _RECURSIVE, _SLAVE, _NO_SUID, _NO_DEVICES, _NO_EXEC = 0x1000, 0x4000, 0x80000, 2, 4, 8  # mount(2)
_MOUNT_SETATTR, _HERE, _ALL_BELOW, _READ_ONLY = 442, -100, 0x8000, 1  # mount_setattr(2)
_PARENT_DEATH, _DROP = 1, 24  # prctl(2)
_KEPT_CAPABILITIES = frozenset(
    {0, 1, 2, 3, 4, 5, 6, 7, 14}
)  # capabilities(7): of files, own processes and locked memory
_LAST_CAPABILITY = 63
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
TERMINALS = "/dev/pts"
BEFORE = "shared_memory"
"""The folder, in the private one, where the machine's shared memory can be read."""
_MOST_SHARED = 4096  # entries


def enter(private: str) -> dict[str, bool]:
    """Enter all namespaces that the kernel permits, in a new process if they include one for processes.

    Returns the mounts as they were: each folder, and whether it was read-only.

    The calling process waits for the new one and ends as it does; it does not return. Raises OSError if
    nothing is permitted.
    """
    mounts = dict(_mounts())
    many = _NETWORK | _MOUNTS | _IPC | _HOST_NAME
    for flags in (many | _PROCESSES, many):
        if _works(partial(_set_up, flags, private)):
            _set_up(flags, private)
            return mounts
    _unshare(_NETWORK)
    return mounts


def drop_capabilities() -> None:
    """Give up root's rights over the machine: its clock, devices, modules, mounts."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(_LAST_CAPABILITY + 1):
        if number not in _KEPT_CAPABILITIES:
            libc.prctl(_DROP, number, 0, 0, 0)
    header = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    data = ctypes.create_string_buffer(24)
    if libc.capget(header, data) == 0:
        words = list(struct.unpack("<6I", data.raw))
        kept = sum(1 << number for number in _KEPT_CAPABILITIES)
        words = [word & (kept if place < 3 else 0) for place, word in enumerate(words)]
        libc.capset(header, struct.pack("<6I", *words))


def _works(attempt: Callable[[], None]) -> bool:
    """Return whether an attempt succeeds, in a process of its own: it cannot be taken back."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - whatever it is, it does not work
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _set_up(flags: int, private: str) -> None:
    _unshare(flags)
    if flags & _PROCESSES:
        _continue_in_child()
    _mount(None, "/", None, _SLAVE | _RECURSIVE)
    if flags & _PROCESSES:
        _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)
    _mount(private, private, None, _BIND)
    _own_shared_memory(private)
    with contextlib.suppress(OSError):
        _own_terminals()
    _set_read_only("/", _ALL_BELOW)
    for folder in (private, "/proc", _SHARED_MEMORY):
        with contextlib.suppress(FileNotFoundError):
            _set_read_only(folder, 0, undo=True)


def _unshare(flags: int) -> None:
    """Raise OSError if the kernel does not permit these namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    # Root would lose access to other users' files in a user namespace, and does not need one.
    if libc.unshare(flags if user == 0 else flags | _USER) != 0:
        raise _error("unshare")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as up:
        fcntl.ioctl(
            up, 0x8914, struct.pack("16sH14s", b"lo", 0x1 | 0x40, b"")
        )  # SIOCSIFFLAGS: up and running


def _continue_in_child() -> None:
    """Return in a grandchild, the second process of the namespace.

    Signals that the first process sends to itself have no effect.
    """
    reads, writes = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(reads)
        ctypes.CDLL(None).prctl(_PARENT_DEATH, int(signal.SIGKILL), 0, 0, 0)
        second = os.fork()
        if second == 0:
            os.close(writes)
            return
        _reap_until(second, writes)
    os.close(writes)
    with open(reads, "rb") as pipe:  # noqa: PTH123
        status = pipe.read()
    os.waitpid(first, 0)
    _end_as(int(status or int(signal.SIGKILL)))


def _reap_until(pid: int, writes: int) -> NoReturn:
    """As the first process of the namespace, reap orphans until this process ends.

    The kernel then kills all others.
    """
    ended, status = 0, 0
    while ended != pid:
        ended, status = os.waitpid(-1, 0)
    os.write(writes, b"%d" % status)
    os._exit(0)


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _own_shared_memory(private: str) -> None:
    """Mount a private /dev/shm.

    What is in the machine's can be read through links, because models may be kept there.
    """
    if not os.path.isdir(_SHARED_MEMORY):
        return
    before = f"{private}/{BEFORE}"
    Path(before).mkdir(exist_ok=True)
    _mount(_SHARED_MEMORY, before, None, _BIND)
    _mount("tmpfs", _SHARED_MEMORY, "tmpfs", _NO_SUID | _NO_DEVICES)
    for name in os.listdir(before)[:_MOST_SHARED]:  # noqa: PTH208 - names are enough
        Path(_SHARED_MEMORY, name).symlink_to(f"{before}/{name}")


def _own_terminals() -> None:
    """Mount a private /dev/pts, so that no other terminal can be opened.

    What is written to another's terminal would appear there, and what is read from it is lost to its user.
    """
    _mount("devpts", TERMINALS, "devpts", _NO_SUID | _NO_EXEC, b"newinstance,ptmxmode=0666")
    _mount(f"{TERMINALS}/ptmx", "/dev/ptmx", None, _BIND)


def _mounts() -> Iterator[tuple[str, bool]]:
    """Yield each mount's folder, and whether it is read-only: proc_pid_mountinfo(5)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            fields = line.split(" ")
            yield fields[4].replace("\\040", " "), "ro" in fields[5].split(",")


def _mount(
    source: str | None, folder: str, kind: str | None, flags: int, options: bytes | None = None
) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words: list[Any] = [None if word is None else os.fsencode(word) for word in (source, folder, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), options) != 0:
        raise _error(folder)


def _set_read_only(folder: str, flags: int, *, undo: bool = False) -> None:
    """Make a mount read-only, or writable again."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    attributes = struct.pack("<4Q", 0 if undo else _READ_ONLY, _READ_ONLY if undo else 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    if libc.syscall(_MOUNT_SETATTR, _HERE, os.fsencode(folder), flags, attributes, size) != 0:
        raise _error(folder)


def _error(what: str) -> OSError:
    number = ctypes.get_errno() or errno.EPERM
    return OSError(number, os.strerror(number), what)
