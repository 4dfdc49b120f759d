"""What running processes hold in common: the two ends of a pipe, a socket or a connection, and shared memory.

Whoever holds the other end may still need a process, whatever its parent. An end of which no holder is seen counts as held
by somebody: another user, another container, another machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process_table import numbers, own_number
from verl_doctor.toolkit.tcp_connections import Connection, connections
from verl_doctor.toolkit.unix_sockets import unix_peers, unix_sockets

_PIPE_OR_SOCKET = re.compile(r"(?:pipe|socket):\[\d+\]")
_STANDARD = 2  # the last of the descriptors for input, output and complaints
# Memory that a process shares to talk: a file on a memory file system, or one without a name. A mapped file on a disk,
# a library or a dataset, is only read by both. Columns: permissions, offset, device, inode, path.
_SHARED = re.compile(
    rb"^\S+ (\S\S\Ss) \S+ (\S+) (\d+) +(?:/dev/shm/|/run/shm/|/memfd:|/dev/zero|/SYSV)", re.MULTILINE
)


@dataclass(frozen=True)
class Tie:
    """One thing that a process holds in common with another. `other` is that one's number, 0 when it is not seen.

    `by` names it: "a pipe". `standard` says that it is a pipe or socket which the process has as its standard input, output or
    error alone, as it has a terminal or a log.
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


def ties_of(pids: Collection[int], machine: Machine) -> dict[int, frozenset[Tie]]:
    """What each of these processes holds in common with any other one, among them or not. This process does not count."""
    own = {pid: _descriptors(pid, machine) for pid in pids}
    sockets = _Sockets(machine)
    wanted = {end.target for ends in own.values() for end in ends or ()}
    wanted |= {
        target for ends in own.values() for end in ends or () for target in sockets.other_ends(end.target)
    }
    memory = {pid: _shared_memory(pid, machine) for pid in pids}
    holders: dict[str, list[tuple[int, _Descriptor]]] = defaultdict(list)
    sharers: dict[bytes, list[tuple[int, bool]]] = defaultdict(list)
    listed, myself = numbers(machine), own_number()
    for pid in () if isinstance(listed, Unknown) else listed:
        if pid == myself:
            continue
        for end in _descriptors(pid, machine, wanted) or ():
            holders[end.target].append((pid, end))
        if any(memory.values()):
            for area, writes in (memory.get(pid) or _shared_memory(pid, machine)).items():
                sharers[area].append((pid, writes))
    return {
        pid: frozenset(
            {
                *((Tie(0, "descriptors that may not be looked at"),) if own[pid] is None else ()),
                *(tie for end in own[pid] or () for tie in _at(end, pid, holders, sockets)),
                *(
                    Tie(other, "shared memory")
                    for area, writes in memory[pid].items()
                    for other, too in sharers[area]
                    if other != pid and (writes or too)
                ),
            }
        )
        for pid in pids
    }


def _at(
    end: _Descriptor,
    pid: int,
    holders: Mapping[str, list[tuple[int, _Descriptor]]],
    sockets: _Sockets,
) -> Iterator[Tie]:
    """The ties at one descriptor."""
    standard = end.number <= _STANDARD
    if not end.target.startswith("socket:"):
        for other, its in holders[end.target]:
            if other != pid and ((end.reads and its.writes) or (end.writes and its.reads)):
                yield Tie(other, "a pipe", standard)
        return
    for other, _ in holders[end.target]:
        if other != pid:
            yield Tie(other, "one socket", standard)
    for target in sockets.other_ends(end.target):
        others = [other for other, _ in holders[target]]
        yield from (Tie(other, "a connection", standard) for other in others if other != pid)
        if not others:
            yield Tie(0, sockets.name(end.target), standard)


class _Sockets:
    """Who is at the other end of the connected sockets of this network namespace."""

    def __init__(self, machine: Machine) -> None:
        self._peers = unix_peers()
        self._tcp: dict[int, Connection] = {}
        self._by_ends: dict[tuple[object, object], Connection] = {}
        self._unix = {one.inode for one in unix_sockets(machine) if one.connected}
        for connection in connections(machine):
            if connection.established:
                self._by_ends[connection.local, connection.remote] = connection
                if connection.inode:
                    self._tcp[connection.inode] = connection

    def other_ends(self, target: str) -> tuple[str, ...]:
        """The socket at the other end, as a descriptor's target; "socket:[0]" when it is held by nobody here."""
        inode = _inode(target)
        if inode is None:
            return ()
        connection = self._tcp.get(inode)
        if connection is not None:
            there = self._by_ends.get((connection.remote, connection.local))
            return (f"socket:[{there.inode if there else 0}]",)
        if self._peers is None:
            return ("socket:[0]",) if inode in self._unix else ()
        peer = self._peers.get(inode, 0)
        return (f"socket:[{peer}]",) if peer else ()

    def name(self, target: str) -> str:
        """What to call a connection whose other end nobody here holds."""
        connection = self._tcp.get(_inode(target) or 0)
        return f"a connection with {connection.remote}" if connection else "a Unix socket"


def _inode(target: str) -> int | None:
    return int(target[len("socket:[") : -1]) if target.startswith("socket:[") else None


def _descriptors(
    pid: int, machine: Machine, wanted: Collection[str] | None = None
) -> tuple[_Descriptor, ...] | None:
    """The `wanted` ones of what a process has open, else all pipes and sockets; None when that may not be looked at."""
    found = []
    try:
        with os.scandir(machine.at(f"/proc/{pid}/fd")) as entries:
            for entry in entries:
                with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                    target = os.readlink(entry.path)  # noqa: PTH115 - one of very many
                    if _talks(entry, target) if wanted is None else target in wanted:
                        mode = entry.stat(follow_symlinks=False).st_mode
                        reads, writes = bool(mode & stat.S_IRUSR), bool(mode & stat.S_IWUSR)
                        found.append(_Descriptor(int(entry.name), target, reads, writes))
    except OSError:
        return None
    return tuple(found)


def _talks(entry: os.DirEntry[str], target: str) -> bool:
    """Whether this is a pipe, with or without a name, or a socket."""
    return bool(_PIPE_OR_SOCKET.fullmatch(target)) or (
        target.startswith("/") and stat.S_ISFIFO(entry.stat().st_mode)
    )


def _shared_memory(pid: int, machine: Machine) -> dict[bytes, bool]:
    """The areas of shared memory that a process has mapped, by device and inode, and whether it may write there."""
    areas: dict[bytes, bool] = {}
    with contextlib.suppress(OSError):
        for permissions, device, inode in _SHARED.findall(machine.at(f"/proc/{pid}/maps").read_bytes()):
            area = device + b":" + inode
            areas[area] = areas.get(area, False) or b"w" in permissions
    return areas
