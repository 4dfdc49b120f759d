"""Signs that a process is still of use: listeners, locks, files that it writes, devices through which it serves others.

Sockets are examined through a copy of the descriptor (pidfd_getfd(2)), which covers all families and network namespaces.
If the kernel refuses, the tables of the process's own namespace count, and a socket missing there counts as a sign of life.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.descriptor_copy import copy_of
from verl_doctor.toolkit.system.process_tasks import steadily, views

_STANDARD = 2
_ACL = socket.SOL_SOCKET, socket.SO_ACCEPTCONN
_USER_NETLINK = 2  # NETLINK_USERSOCK, by which processes communicate with each other
# Devices that a process may have open without serving others.
_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|u?random|tty|console|pts/\d+|nvidia[\w-]*(?:/.*)?|infiniband/.*|dri/.*|kfd|gdrdrv|cpu_dma_latency"
    r"|shm(?:/.*)?|hugepages(?:/.*)?|mqueue/.*)"
)
_HARMLESS = re.compile(
    r"anon_inode:\[?(?:eventfd|eventpoll|timerfd|signalfd|io_uring|sync_file)\]?|/dmabuf:.*|/memfd:.*"
)
_TIMER = re.compile(r"^it_value: \((\d+), (\d+)\)$", re.MULTILINE)
_LOCK = re.compile(r"^lock:\s", re.MULTILINE)
_CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)
# Signals that only a timer or a folder watch sends. /proc does not show setitimer(2), alarm(2) or F_NOTIFY.
_WAKING = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO)
# System calls that wait for another process with the same queue or semaphore: semop, semtimedop, msgsnd, msgrcv, mq_timedsend,
# mq_timedreceive.
_QUEUES = {
    "x86_64": frozenset({"65", "220", "69", "70", "242", "243"}),
    "aarch64": frozenset({"193", "192", "189", "188", "182", "183"}),
}
_SESSION_FILE = re.compile(r".*/session_[\w-]+/.*")
_TERMINAL, _FOREGROUND, _GROUP, _STATE = 7, 8, 5, 3  # fields of /proc/PID/stat, counted from 1
_NAME_ENDS = 3

Family = Literal["TCP listener", "other"]


@dataclass(frozen=True)
class Sign:
    """One sign of life, as the end of a sentence that begins with "it". `port` is a TCP listener's."""

    text: str
    family: Family = "other"
    port: int = 0


def signs_of_life(pid: int, machine: Machine) -> tuple[Sign, ...]:
    """Return all signs of life of this process. Anything that may not be inspected counts as one."""
    try:
        if views(pid, machine) != (f"/proc/{pid}",):
            return (Sign("has threads with descriptors or folders of their own"),)
        return steadily(pid, machine, lambda: (*_state(pid, machine), *_descriptors(pid, machine)))
    except FileNotFoundError:
        return (Sign("ended while it was examined"),)
    except OSError as error:
        return (Sign(f"cannot be examined ({error.strerror})"),)


def _state(pid: int, machine: Machine) -> Iterator[Sign]:
    fields = (machine.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(fields) > _FOREGROUND:
        if fields[_STATE - _NAME_ENDS] in "tT":
            yield Sign("is stopped and may be resumed")
        terminal, foreground, group = (
            int(fields[at - _NAME_ENDS]) for at in (_TERMINAL, _FOREGROUND, _GROUP)
        )
        if terminal and foreground == group:
            yield Sign("runs in the foreground of a terminal")
    if (machine.read(f"/proc/{pid}/timers") or "").strip():
        yield Sign("has a timer")
    caught = _CAUGHT.search(machine.read(f"/proc/{pid}/status") or "")
    signals = int(caught[1], 16) if caught else 0
    for number in _WAKING:
        if signals >> (number - 1) & 1:
            yield Sign(f"waits for {number.name}, which a timer or a folder watch sends")
    yield from _queues(pid, machine)


def _queues(pid: int, machine: Machine) -> Iterator[Sign]:
    calls = _QUEUES.get(os.uname().machine, frozenset())
    for task in os.listdir(machine.at(f"/proc/{pid}/task")):  # noqa: PTH208 - names alone
        if (machine.read(f"/proc/{pid}/task/{task}/syscall") or "").partition(" ")[0] in calls:
            yield Sign("waits at a message queue or a semaphore that others may use")
            return


def _descriptors(pid: int, machine: Machine) -> Iterator[Sign]:
    folder = machine.at(f"/proc/{pid}/fd")
    names = sorted(os.listdir(folder), key=int)  # noqa: PTH208 - names alone
    targets: dict[int, str] = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets[int(name)] = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - "socket:[4711]" is no path
    output = {targets.get(number) for number in (1, 2)}
    for number, target in targets.items():
        info = machine.read(f"/proc/{pid}/fdinfo/{number}") or ""
        if _LOCK.search(info):
            yield Sign(f"holds a lock or a lease on {target}")
        if target.startswith("socket:"):
            yield from _socket(pid, number, target, machine)
        elif target.startswith("anon_inode:"):
            yield from _anonymous(target, info)
        elif target.startswith("/dev/"):
            if not _DEVICES.fullmatch(target):
                yield Sign(f"has {target} open, through which it may serve others")
        elif target.startswith("/") and not _HARMLESS.fullmatch(target):
            yield from _file(f"{folder}/{number}", number, target, written_as_output=target in output)


def _anonymous(target: str, info: str) -> Iterator[Sign]:
    if not _HARMLESS.fullmatch(target):
        yield Sign(f"has {target} open, which may wake it or others")
    timer = _TIMER.search(info)
    if timer and (int(timer[1]) or int(timer[2])):
        yield Sign("has a running timer")


def _file(link: str, number: int, target: str, *, written_as_output: bool) -> Iterator[Sign]:
    """Yield the signs of a file on a disk. The process's own log (its output) and files of a Ray session do not count."""
    try:
        about, opened = Path(link).stat(), Path(link).lstat()
    except FileNotFoundError:
        return  # closed meanwhile
    if stat.S_ISFIFO(about.st_mode):
        yield Sign(f"has the named pipe {target} open, which any process may use")
    elif (
        stat.S_ISREG(about.st_mode)
        and opened.st_mode & stat.S_IWUSR
        and not (number <= _STANDARD or written_as_output or _SESSION_FILE.fullmatch(target))
    ):
        yield Sign(f"has {target} open for writing")


def _socket(pid: int, number: int, target: str, machine: Machine) -> Iterator[Sign]:
    copy = _copy(pid, number)
    if copy is None:
        yield from _listed(pid, number, target, machine)
        return
    with copy:
        yield from _looked_at(copy)


def _looked_at(connection: socket.socket) -> Iterator[Sign]:
    try:
        name = connection.getsockname()
    except (OSError, ValueError):
        name = ""
    if connection.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        yield Sign(f"has a socket of family {int(connection.family)} open")
    elif connection.family == socket.AF_NETLINK:
        if connection.proto == _USER_NETLINK or (isinstance(name, tuple) and name[1]):
            yield Sign("listens to messages of the kernel or of other processes (netlink)")
    elif connection.getsockopt(*_ACL):
        family: Family = (
            "TCP listener"
            if connection.family != socket.AF_UNIX and connection.proto in (0, socket.IPPROTO_TCP)
            else "other"
        )
        yield Sign(f"listens at {_named(name)}", family, name[1] if isinstance(name, tuple) else 0)
    elif connection.type == socket.SOCK_RAW:
        yield Sign("has a raw socket open")
    elif connection.type != socket.SOCK_STREAM and connection.family == socket.AF_UNIX:
        if name and connection.type == socket.SOCK_DGRAM:
            yield Sign(f"receives datagrams at {_named(name)}")
    elif connection.type != socket.SOCK_STREAM and isinstance(name, tuple) and name[1]:
        yield Sign(f"sends or receives datagrams at {_named(name)}")


def _named(name: object) -> str:
    if isinstance(name, tuple):
        return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
    return (
        os.fsdecode(name)
        if isinstance(name, bytes) and name[:1] != b"\0"
        else f"@{name!r}"
        if isinstance(name, bytes)
        else str(name)
    )


_NAMES = {"tcp": ("TCP", "TCPv6"), "udp": ("UDP", "UDPv6", "UDP-Lite", "UDPLITEv6")}
_LISTENS = "0A"


def _listed(pid: int, number: int, target: str, machine: Machine) -> Iterator[Sign]:
    """Do the same from the tables of its network namespace if copying is refused."""
    try:
        kind = (
            os.getxattr(machine.at(f"/proc/{pid}/fd/{number}"), "system.sockprotoname").decode().rstrip("\0")
        )
    except OSError:
        kind = ""
    inode = target[len("socket:[") : -1]
    if kind.startswith("UNIX"):
        for line in (machine.read(f"/proc/{pid}/net/unix") or "").splitlines()[1:]:
            words = line.split(None, 7)
            if len(words) > 6 and words[6] == inode:
                if words[3] != "00000000":  # __SO_ACCEPTCON
                    yield Sign(f"listens at {words[7] if len(words) > 7 else 'a Unix socket'}")
                elif words[4] == "0002" and len(words) > 7:
                    yield Sign(f"receives datagrams at {words[7]}")
                return
    elif kind in _NAMES["tcp"]:
        for row in _table(pid, machine, "tcp", "tcp6"):
            if row[9] == inode:
                if row[3] == _LISTENS:
                    port = int(row[1].rpartition(":")[2], 16)
                    yield Sign(f"listens at port {port}", "TCP listener", port)
                return
    elif kind in _NAMES["udp"]:
        if any(row[9] == inode for row in _table(pid, machine, "udp", "udp6", "udplite", "udplite6")):
            yield Sign("sends or receives datagrams")
            return
    elif kind == "NETLINK":
        return
    yield Sign("has a socket that cannot be examined")


def _table(pid: int, machine: Machine, *names: str) -> Iterator[list[str]]:
    for name in names:
        for line in (machine.read(f"/proc/{pid}/net/{name}") or "").splitlines()[1:]:
            if len(words := line.split()) > 9:
                yield words


def _copy(pid: int, number: int) -> socket.socket | None:
    """Return a copy of another process's socket; None if the kernel refuses."""
    descriptor = copy_of(pid, number)
    if descriptor is None:
        return None
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None
