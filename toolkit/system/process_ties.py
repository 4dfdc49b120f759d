"""What running processes share: pipes, sockets, connections, shared memory, files, events.

A process may still need another that shares something with it, whoever started it. An end without a visible
holder counts as held by another user, container or machine. Only the kernel can prove that a pipe has no
other end.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import select
import socket
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.descriptor_copy import copy_of
from verl_doctor.toolkit.system.process_table import (
    has_memory,
    is_first_of_machine,
    numbers,
    own_number,
    sees_all,
)
from verl_doctor.toolkit.system.process_tasks import steadily, views
from verl_doctor.toolkit.system.unix_sockets import unix_peers, unix_sockets

_ESTABLISHED = "01"
LISTENS = "0A"
# Connection states in which one side may still wait for the other: open, or one side has finished sending.
_WAITING = frozenset(
    {"01", "03", "04", "05", "08"}
)  # ESTABLISHED, SYN_RECV, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT
_GONE = frozenset({"04", "05", "08"})  # states that outlive the other side


@dataclass(frozen=True)
class End:
    """An address and a port."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class Connection:
    """One socket. `inode` is 0 while no process holds it."""

    inode: int
    local: End
    remote: End
    established: bool
    state: str = _ESTABLISHED


def connections(machine: Machine) -> Iterator[Connection]:
    """Yield all TCP sockets of this namespace."""
    for name in ("tcp", "tcp6"):
        for line in (machine.read(f"/proc/net/{name}") or "").splitlines()[1:]:
            words = line.split()
            if (
                len(words) > 9
            ):  # number, local, remote, state, queues, timer, retransmitted, user, timeout, inode
                yield Connection(
                    int(words[9]), _end(words[1]), _end(words[2]), words[3] == _ESTABLISHED, words[3]
                )


def _end(written: str) -> End:
    """Read 32-bit words in the machine's byte order: "0100007F:84C1" is 127.0.0.1, port 33985."""
    digits, _, port = written.partition(":")
    packed = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return End(str(mapped or address), int(port, 16))


_PIPE_OR_SOCKET = re.compile(r"(?:pipe|socket|eventfd|memfd):\[\d+\]")
_MEMFD = "/memfd:"
_STANDARD = 2  # the last of the descriptors for input, output and errors
# A shared mapping, except of a device. Two processes that only read the same library or model do not need
# each other. Columns: permissions, offset, device, inode, path.
_SHARED = re.compile(
    (
        rb"^\S+ (\S\S\Ss) \S+ (\S+) (\d+) +((?!/dev/|anon_inode:|socket:)[^\n]+|/dev/(?:shm/|zero"
        rb"|hugepages/)[^\n]*)$"
    ),
    re.MULTILINE,
)
_INHERITED = b"/dev/zero"  # unnamed shared memory, which only children inherit
_EVENT = re.compile(r"^eventfd-id:\s*(\d+)$", re.MULTILINE)
_WATCHED = re.compile(r"^Pid:\s*(\d+)$", re.MULTILINE)  # of a pidfd
_FILE_OF_PROCESS = re.compile(r"/proc/(\d+)(?:/.*)?")


@dataclass(frozen=True)
class Tie:
    """Something that a process shares with another. `other` is the other's number, 0 if it is not visible.

    `by` describes it: "a pipe". `standard` means that it is a pipe or socket which the process has only as
    its standard input, output or error, such as a terminal or a log.
    """

    other: int
    by: str
    standard: bool = False


@dataclass(frozen=True)
class _Descriptor:
    number: int
    target: str  # "pipe:[4711]"
    reads: bool
    writes: bool
    view: str


@dataclass(frozen=True)
class _Area:
    """One shared memory segment: whether this process may write there, and its path."""

    writes: bool
    path: bytes


def ties_of(pids: Collection[int], machine: Machine) -> dict[int, frozenset[Tie]]:
    """Return what each of these processes shares with any other process, except for this one."""
    own = {pid: _descriptors(pid, machine) for pid in pids}
    sockets = _Sockets(machine)
    memory = {pid: _shared_memory(pid, machine) for pid in pids}
    mapped = {os.fsdecode(area.path) for areas in memory.values() for area in (areas or {}).values()}
    wanted = {end.target for ends in own.values() for end in ends or ()} | mapped
    wanted |= {
        target for ends in own.values() for end in ends or () for target in sockets.other_ends(end.target)
    }
    wanted |= {f"process:[{pid}]" for pid in pids}
    holders: dict[str, list[tuple[int, _Descriptor]]] = defaultdict(list)
    sharers: dict[bytes, list[tuple[int, bool]]] = defaultdict(list)
    hidden = not sees_all(machine)
    listed, myself = numbers(machine), own_number()
    for pid in () if isinstance(listed, Unknown) else listed:
        if pid == myself:
            continue
        for end in _descriptors(pid, machine, wanted) or ():
            holders[end.target].append((pid, end))
        if any(memory.values()):
            areas = memory[pid] if pid in memory else _shared_memory(pid, machine)
            hidden |= areas is None and _may_share(pid, machine)
            for key, area in (areas or {}).items():
                sharers[key].append((pid, area.writes))
    return {
        pid: frozenset(
            {
                *((Tie(0, "descriptors that cannot be examined"),) if own[pid] is None else ()),
                *((Tie(0, "memory that cannot be examined"),) if memory[pid] is None else ()),
                *(tie for end in own[pid] or () for tie in _at(end, pid, holders, sockets, machine)),
                *(
                    Tie(other, "its pidfd or /proc folder in common")
                    for other, _ in holders[f"process:[{pid}]"]
                    if other != pid
                ),
                *_shared(pid, memory[pid] or {}, sharers, holders, hidden=hidden),
            }
        )
        for pid in pids
    }


def socket_inodes(pid: int, machine: Machine) -> frozenset[int]:
    """Return the numbers of the sockets that a process has open; none if these may not be inspected."""
    ends = _descriptors(pid, machine) or ()
    return frozenset(inode for end in ends if (inode := _inode(end.target)) is not None)


def _may_share(pid: int, machine: Machine) -> bool:
    """Return whether a process that may not be inspected may share memory with others."""
    return has_memory(machine.read(f"/proc/{pid}/status") or "") and not is_first_of_machine(pid, machine)


def _shared(
    pid: int,
    areas: Mapping[bytes, _Area],
    sharers: Mapping[bytes, list[tuple[int, bool]]],
    holders: Mapping[str, list[tuple[int, _Descriptor]]],
    *,
    hidden: bool,
) -> Iterator[Tie]:
    """Yield the ties by shared memory. A `hidden` process may share any named memory."""
    for key, area in areas.items():
        for other, too in sharers.get(key, ()):
            if other != pid and (area.writes or too):
                yield Tie(other, "shared memory")
        for other, end in holders.get(os.fsdecode(area.path), ()):
            if other != pid and (area.writes or end.writes):
                yield Tie(other, "shared memory")
        if hidden and area.writes and not area.path.startswith(_INHERITED):
            yield Tie(0, "shared memory")


def lost_ends(pid: int, machine: Machine) -> int:
    """Return how many pipes and connections of a process have lost their other end, according to the kernel.

    A child of multiprocessing has at least one after its parent has ended: the pipe on which it waits for
    that.
    """
    sockets = _Sockets(machine)
    ends = _descriptors(pid, machine) or ()
    return sum(_is_lost(end, pid, machine) or sockets.is_lost(end.target) for end in ends)


def _is_lost(end: _Descriptor, pid: int, machine: Machine) -> bool:
    """Return whether an unnamed pipe has lost its other end: readers get end of file, writers an error."""
    if not end.target.startswith("pipe:") or end.reads == end.writes:
        return False
    copy = copy_of(pid, end.number) if end.view == f"/proc/{pid}" else None
    if copy is None:
        way = os.O_RDONLY if end.reads else os.O_WRONLY
        try:
            copy = os.open(machine.at(f"{end.view}/fd/{end.number}"), way | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
    try:
        poll = select.poll()
        poll.register(copy, select.POLLIN if end.reads else select.POLLOUT)
        seen = dict(poll.poll(0)).get(copy, 0)
    finally:
        os.close(copy)
    return bool(seen & (select.POLLHUP if end.reads else select.POLLERR))


def _at(
    end: _Descriptor,
    pid: int,
    holders: Mapping[str, list[tuple[int, _Descriptor]]],
    sockets: _Sockets,
    machine: Machine,
) -> Iterator[Tie]:
    """Yield the ties through one descriptor."""
    standard = end.number <= _STANDARD
    if end.target.startswith(("eventfd:", "memfd:")):
        by = "an event" if end.target.startswith("eventfd:") else "memory without a name"
        yield from (Tie(other, by) for other, _ in holders[end.target] if other != pid)
        return
    if not end.target.startswith("socket:"):
        ends = [
            (other, its)
            for other, its in holders[end.target]
            if (end.reads and its.writes) or (end.writes and its.reads)
        ]
        yield from (Tie(other, "a pipe", standard) for other, _ in ends if other != pid)
        if not ends and end.target.startswith("pipe:") and not _is_lost(end, pid, machine):
            yield Tie(0, "a pipe", standard)
        return
    for other, _ in holders[end.target]:
        if other != pid:
            yield Tie(other, "one socket", standard)
    for target in sockets.other_ends(end.target):
        others = [other for other, _ in holders[target]]
        yield from (Tie(other, "a connection", standard) for other in others if other != pid)
        if not others:
            yield Tie(0, sockets.name(end.target), standard)
    if not sockets.lists(end.target) and _is_connected(end, pid):
        yield Tie(0, "a connection of another network or kind", standard)


def _is_connected(end: _Descriptor, pid: int) -> bool:
    """Return whether a socket that no table lists is connected.

    One that may not be copied is left to `signs_of_life`.
    """
    copy = copy_of(pid, end.number) if end.view == f"/proc/{pid}" else None
    if copy is None:
        return False
    try:
        with socket.socket(fileno=copy) as connection:
            if connection.family == socket.AF_NETLINK:  # its other end is the kernel
                return False
            connection.getpeername()
    except OSError as error:
        return error.errno != errno.ENOTCONN
    return True


class _Sockets:
    """The other ends of the connected sockets of this network namespace."""

    def __init__(self, machine: Machine) -> None:
        self._peers = unix_peers()
        self._tcp: dict[int, Connection] = {}
        self._by_ends: dict[tuple[object, object], Connection] = {}
        unix = list(unix_sockets(machine))
        self._unix = {unix_socket.inode for unix_socket in unix if unix_socket.connected}
        self._listed = {unix_socket.inode for unix_socket in unix}
        for connection in connections(machine):
            self._listed.add(connection.inode)
            if connection.state in _WAITING:
                self._by_ends[connection.local, connection.remote] = connection
                if connection.inode:
                    self._tcp[connection.inode] = connection

    def other_ends(self, target: str) -> tuple[str, ...]:
        """Return the socket at the other end, in the form of a descriptor's target.

        "socket:[0]" if no process here holds it.
        """
        inode = _inode(target)
        if inode is None:
            return ()
        connection = self._tcp.get(inode)
        if connection is not None:
            other_end = self._by_ends.get((connection.remote, connection.local))
            if connection.state in _GONE and self._has_ended(connection, other_end):
                return ()
            return (f"socket:[{other_end.inode if other_end else 0}]",)
        if self._peers is None:
            return ("socket:[0]",) if inode in self._unix else ()
        peer = self._peers.get(inode, 0)
        return (f"socket:[{peer}]",) if peer else ()

    def lists(self, target: str) -> bool:
        """Return whether the tables of this network namespace contain a socket."""
        return _inode(target) in self._listed

    def is_lost(self, target: str) -> bool:
        """Return whether it was connected to a process of this machine that has ended."""
        inode = _inode(target)
        connection = self._tcp.get(inode or 0)
        if connection is not None:
            other_end = self._by_ends.get((connection.remote, connection.local))
            return connection.state in _GONE and self._has_ended(connection, other_end)
        return inode in self._unix and self._peers is not None and not self._peers.get(inode or 0, 0)

    def _has_ended(self, here: Connection, other_end: Connection | None) -> bool:
        """Return whether the other side is on this machine and no longer held by any process."""
        local = (
            here.remote.address == here.local.address or ipaddress.ip_address(here.remote.address).is_loopback
        )
        return local and (other_end is None or not other_end.inode)

    def name(self, target: str) -> str:
        """Return the name of a connection whose other end no process here holds."""
        connection = self._tcp.get(_inode(target) or 0)
        return f"a connection with {connection.remote}" if connection else "a Unix socket"


def _inode(target: str) -> int | None:
    return int(target[len("socket:[") : -1]) if target.startswith("socket:[") else None


def _descriptors(
    pid: int, machine: Machine, wanted: Collection[str] | None = None
) -> tuple[_Descriptor, ...] | None:
    """Return the `wanted` descriptors of a process, by default all that may tie it.

    None if these may not be inspected.
    """
    try:
        return steadily(pid, machine, lambda: tuple(_open_in(views(pid, machine), machine, wanted)))
    except OSError:
        return None


def _open_in(
    folders: Collection[str], machine: Machine, wanted: Collection[str] | None
) -> Iterator[_Descriptor]:
    events = wanted is None or any(target.startswith("eventfd:") for target in wanted)
    memory = wanted is None or any(target.startswith("memfd:") for target in wanted)
    processes = wanted is not None
    for view in folders:
        with os.scandir(machine.at(f"{view}/fd")) as entries:
            for entry in entries:
                with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                    target = os.readlink(entry.path)  # noqa: PTH115 - one of very many
                    if events and target == "anon_inode:[eventfd]":
                        target = _event(f"{view}/fdinfo/{entry.name}", machine)
                    elif memory and target.startswith(_MEMFD) and (wanted is None or target not in wanted):
                        target = f"memfd:[{entry.stat().st_ino}]"
                    elif processes and (
                        number := _process_of(target, f"{view}/fdinfo/{entry.name}", machine)
                    ):
                        target = f"process:[{number}]"
                    if _is_channel(entry, target) if wanted is None else target in wanted:
                        mode = entry.stat(follow_symlinks=False).st_mode
                        reads, writes = bool(mode & stat.S_IRUSR), bool(mode & stat.S_IWUSR)
                        yield _Descriptor(int(entry.name), target, reads, writes, view)


def _event(path: str, machine: Machine) -> str:
    """Return what identifies an eventfd, "eventfd:[4711]", if the kernel numbers them."""
    number = _EVENT.search(machine.read(path) or "")
    return f"eventfd:[{number[1]}]" if number else ""


def _process_of(target: str, info: str, machine: Machine) -> str:
    """Return the number of the process that a pidfd or open file of /proc refers to, "" for others.

    The others are other descriptors.
    """
    if target == "anon_inode:[pidfd]":
        match = _WATCHED.search(machine.read(info) or "")
    else:
        match = _FILE_OF_PROCESS.fullmatch(target)
    return match[1] if match else ""


def _is_channel(entry: os.DirEntry[str], target: str) -> bool:
    """Return whether this is a pipe, with or without a name, a socket or an event."""
    return bool(_PIPE_OR_SOCKET.fullmatch(target)) or (
        target.startswith("/") and stat.S_ISFIFO(entry.stat().st_mode)
    )


def _maps_of_threads(pid: int, machine: Machine) -> bytes:
    """Return the mappings of a process whose first thread has ended; empty for the kernel's own."""
    folders = [folder for folder in views(pid, machine) if folder != f"/proc/{pid}"]
    return machine.at(f"{folders[0]}/maps").read_bytes() if folders else b""


def _shared_memory(pid: int, machine: Machine) -> dict[bytes, _Area] | None:
    """Return a process's shared mappings, by device and inode; None if they may not be inspected."""
    areas: dict[bytes, _Area] = {}
    try:
        mapped = machine.at(f"/proc/{pid}/maps").read_bytes() or _maps_of_threads(pid, machine)
    except FileNotFoundError:
        return {}
    except OSError:
        return None
    for permissions, device, inode, path in _SHARED.findall(mapped):
        key = device + b":" + inode
        before = areas.get(key)
        areas[key] = _Area(b"w" in permissions or (before is not None and before.writes), path)
    return areas
