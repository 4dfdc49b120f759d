"""The Unix sockets of this network namespace: /proc/net/unix, and their connections, queried from the kernel.

The query uses sock_diag(7) with `UDIAG_SHOW_PEER`. Any user may send it, and it covers the whole network
namespace.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.machine import Machine

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_ALL = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBHIIIII")  # family, protocol, pad, states, inode, what to show, cookie
_MESSAGE = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, cookie
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_NUMBER = struct.Struct("=I")
_ANY = 0xFFFFFFFF
_SHOW_PEER, _SHOW_CLIENTS, _SHOW_QUEUE = 0x4, 0x8, 0x10
# UNIX_DIAG_PEER, UNIX_DIAG_ICONS, and UNIX_DIAG_RQLEN, whose first number counts unreceived bytes or
# connections.
_PEER, _CLIENTS, _QUEUE = 2, 3, 4
_BUFFER = 1 << 20
_KERNEL_TIMEOUT = 2.0  # seconds without a response
_CONNECTED = "03"


@dataclass(frozen=True)
class UnixSocket:
    """One line of /proc/net/unix. `path` is the bound path, "" for none; an abstract path begins with "@"."""

    inode: int
    connected: bool
    path: str = ""


def unix_sockets(machine: Machine) -> Iterator[UnixSocket]:
    """Yield all of them."""
    for line in (machine.read("/proc/net/unix") or "").split("\n")[1:]:
        # Number, references, protocol, flags, type, state, inode and path, which may contain blanks.
        words = line.split(None, 7)
        if len(words) > 6:
            yield UnixSocket(int(words[6]), words[5] == _CONNECTED, words[7] if len(words) > 7 else "")


@dataclass(frozen=True)
class Diagnosis:
    """What the kernel reports about one Unix socket.

    `peer` is the inode of the socket at the other end, `waiting` the number of unreceived bytes, or of
    connections. `clients` are the inodes of those that have connected and wait to be accepted.
    """

    inode: int
    peer: int = 0
    waiting: int = 0
    clients: tuple[int, ...] = ()


UNACCEPTED = -1
"""The peer of a socket that waits for its listener to accept it."""


def unix_peers() -> dict[int, int] | None:
    """Return the inode at the other end of each Unix socket, by inode; 0 if there is none.

    None if the kernel does not report it.
    """
    every = unix_diagnoses()
    if every is None:
        return None
    peers = {diagnosis.inode: diagnosis.peer for diagnosis in every}
    return peers | {client: UNACCEPTED for diagnosis in every for client in diagnosis.clients}


def unix_diagnoses() -> tuple[Diagnosis, ...] | None:
    """Return all Unix sockets of this network namespace; None if the kernel does not report them."""
    body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, 0, _SHOW_PEER | _SHOW_CLIENTS | _SHOW_QUEUE, _ANY, _ANY)
    request = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_ALL, 1, 0) + body
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as connection:
            connection.settimeout(_KERNEL_TIMEOUT)
            connection.send(request)
            return tuple(_messages(connection))
    except (OSError, struct.error):
        return None


def _messages(connection: socket.socket) -> Iterator[Diagnosis]:
    """Query the kernel. Raises OSError when it refuses."""
    while True:
        received = connection.recv(_BUFFER)
        place = 0
        while place < len(received):
            length, kind, *_ = _HEADER.unpack_from(received, place)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size:
                raise OSError("the kernel does not respond to sock_diag")
            yield _diagnosis(received, place + _HEADER.size, place + length)
            place += _aligned(length)


def _diagnosis(received: bytes, place: int, end: int) -> Diagnosis:
    inode: int = _MESSAGE.unpack_from(received, place)[4]
    place += _MESSAGE.size
    numbers: dict[int, tuple[int, ...]] = {}
    while place < end:
        length, kind = _ATTRIBUTE.unpack_from(received, place)
        if kind in (_PEER, _CLIENTS, _QUEUE):
            count = max(length - _ATTRIBUTE.size, 0) // _NUMBER.size
            numbers[kind] = struct.unpack_from(f"={count}I", received, place + _ATTRIBUTE.size)
        place += max(_aligned(length), _ATTRIBUTE.size)
    peer, queue = (numbers.get(kind, (0,))[0] for kind in (_PEER, _QUEUE))
    return Diagnosis(inode, peer, queue, numbers.get(_CLIENTS, ()))


def _aligned(length: int) -> int:
    return (length + 3) & ~3
