"""Signs that a process is still of use.

Listeners, locks, files that it writes, devices through which it serves others.

Sockets are examined through a copy of the descriptor (pidfd_getfd(2)), which covers all families and network
namespaces. If the kernel refuses, the tables of the process's own namespace count, and a socket missing there
counts as a sign of life.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.cgroups import is_frozen
from verl_doctor.toolkit.system.descriptor_copy import copy_of
from verl_doctor.toolkit.system.file_systems import is_message_queue
from verl_doctor.toolkit.system.process_table import threads
from verl_doctor.toolkit.system.process_tasks import steadily, views

_STANDARD = 2
_ACL = socket.SOL_SOCKET, socket.SO_ACCEPTCONN
_USER_NETLINK = 2  # NETLINK_USERSOCK, by which processes communicate with each other
# Devices that a process may have open without serving others.
_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|u?random|tty|console|pts/\d+|nvidia[\w-]*(?:/.*)?|infiniband/.*|dri/.*|kfd"
    r"|gdrdrv|cpu_dma_latency|shm(?:/.*)?|hugepages(?:/.*)?)"
)
_HARMLESS = re.compile(
    r"anon_inode:\[?(?:eventfd|eventpoll|timerfd|signalfd|io_uring|sync_file)\]?|/dmabuf:.*|/memfd:.*"
)
_TIMER = re.compile(r"^it_value: \((\d+), (\d+)\)$", re.MULTILINE)
_LOCK = re.compile(r"^lock:\s", re.MULTILINE)
_SIGNALS = re.compile(r"^Sig(Cgt|Blk):\s*([0-9a-f]+)$", re.MULTILINE)
_IN_MESSAGES = re.compile(r"^scm_fds:\s*[1-9]", re.MULTILINE)
_INODE = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
RING_TARGET = "anon_inode:[io_uring]"
RING = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +anon_inode:\[io_uring\]", re.MULTILINE)
# Signals that only a timer or a folder watch sends, and those that F_SETSIG of fcntl(2) may choose instead.
# /proc does not show setitimer(2), alarm(2) or F_NOTIFY. glibc uses 32 and 33 itself.
_WAKING = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, *range(34, 65))
# System calls that wait for another process with the same queue or semaphore: semop, semtimedop, msgsnd,
# msgrcv, mq_timedsend, mq_timedreceive.
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
    if is_frozen(machine, pid):
        yield Sign("is frozen and may be thawed")
    if (machine.read(f"/proc/{pid}/timers") or "").strip():
        yield Sign("has a timer")
    signals = _awaited(pid, machine)
    for number in _WAKING:
        if signals >> (number - 1) & 1:
            name = number.name if isinstance(number, signal.Signals) else f"signal {number}"
            yield Sign(f"waits for {name}, which a timer or a folder watch sends")
    yield from _queues(pid, machine)


def _awaited(pid: int, machine: Machine) -> int:
    """Return the signals that reach a process, as a mask.

    Those with a handler, and those that all threads block, to wait for them.
    """
    caught, blocked = 0, -1
    for task in threads(pid, machine):
        status = machine.read(f"/proc/{pid}/task/{task}/status") or ""
        for name, mask in _SIGNALS.findall(status):
            if name == "Cgt":
                caught |= int(mask, 16)
            else:
                blocked &= int(mask, 16)
    return caught | max(blocked, 0)


def _memory(pid: int, rings: Collection[str], machine: Machine) -> Iterator[Sign]:
    """Yield the signs of what a process has mapped.

    Semaphores that others may open, and requests to the kernel without a descriptor.
    """
    mapped = machine.read(f"/proc/{pid}/maps") or ""
    if "/[aio]" in mapped:
        yield Sign("has asynchronous requests to the kernel (io_setup)")
    if any(inode not in rings for inode in RING.findall(mapped)):
        yield Sign("has an io_uring without a descriptor")
    with contextlib.suppress(OSError):
        for entry in os.scandir(machine.at("/dev/shm")):  # noqa: S108 - only listed
            if entry.name.startswith("sem.") and not entry.name.startswith("sem.mp-"):
                about = entry.stat(follow_symlinks=False)
                place = f" {os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x} {about.st_ino} "
                if place in mapped:
                    yield Sign(f"uses the semaphore /dev/shm/{entry.name}, which others may open")


def _queues(pid: int, machine: Machine) -> Iterator[Sign]:
    calls = _QUEUES.get(os.uname().machine, frozenset())
    for task in threads(pid, machine):
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
    rings: set[str] = set()
    for number, target in targets.items():
        info = machine.read(f"/proc/{pid}/fdinfo/{number}") or ""
        if _LOCK.search(info):
            yield Sign(f"holds a lock or a lease on {target}")
        if _IN_MESSAGES.search(info):
            yield Sign("has a message with descriptors in one of its sockets")
        if target == RING_TARGET:
            rings.update(_INODE.findall(info))
        if target.startswith("socket:"):
            yield from _socket(pid, number, target, machine)
        elif target.startswith("anon_inode:"):
            yield from _anonymous(target, info)
        elif target.startswith("/dev/"):
            if not _DEVICES.fullmatch(target):
                yield Sign(f"has {target} open, through which it may serve others")
        elif target.startswith("/") and not _HARMLESS.fullmatch(target):
            yield from _file(f"{folder}/{number}", number, target, written_as_output=target in output)
    yield from _memory(pid, rings, machine)


def _anonymous(target: str, info: str) -> Iterator[Sign]:
    if not _HARMLESS.fullmatch(target):
        yield Sign(f"has {target} open, which may wake it or others")
    if target == RING_TARGET and not _is_idle(info):
        yield Sign("has files or requests in an io_uring")
    timer = _TIMER.search(info)
    if timer and (int(timer[1]) or int(timer[2])):
        yield Sign("has a running timer")


def _is_idle(ring: str) -> bool:
    """Return whether an io_uring has no files of its own and has completed all its requests.

    Old kernels do not report the latter.
    """
    fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", ring, re.MULTILINE))
    return (
        fields.get("UserFiles") == "0"
        and not re.search(r"^PollList:\n\s+\S", ring, re.MULTILINE)
        and fields.get("SqHead") == fields.get("SqTail")
        and fields.get("CachedSqHead", "?") == fields.get("CachedCqTail", "")
    )


def _file(link: str, number: int, target: str, *, written_as_output: bool) -> Iterator[Sign]:
    """Yield the signs of a file on a disk.

    The process's own log (its output) and files of a Ray session do not count.
    """
    try:
        about, opened = Path(link).stat(), Path(link).lstat()
    except FileNotFoundError:
        return  # closed meanwhile
    if stat.S_ISFIFO(about.st_mode):
        yield Sign(f"has the named pipe {target} open, which any process may use")
    elif is_message_queue(link):
        yield Sign(f"has the message queue {target} open, which any process may use")
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
