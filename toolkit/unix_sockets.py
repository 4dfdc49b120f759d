"""The Unix sockets of this network namespace: /proc/net/unix, and which are connected with which, asked of the kernel.

The protocol of that question is that of sock_diag(7), with `UDIAG_SHOW_PEER`. Any user may ask, and hears of all sockets of the network namespace.
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
_ANSWER = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, cookie
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_NUMBER = struct.Struct("=I")
_ANY = 0xFFFFFFFF
_SHOW_PEER = 0x4
_PEER = 2  # UNIX_DIAG_PEER
_BUFFER = 1 << 20
_PATIENCE = 2.0  # seconds without an answer
_CONNECTED = "03"


@dataclass(frozen=True)
class UnixSocket:
    """One line of /proc/net/unix. `path` is what it is bound to, "" when to nothing; an abstract one begins with "@"."""

    inode: int
    connected: bool
    path: str = ""


def unix_sockets(machine: Machine) -> Iterator[UnixSocket]:
    """All of them."""
    for line in (machine.read("/proc/net/unix") or "").split("\n")[1:]:
        # Number, references, protocol, flags, type, state, inode and path, which may hold blanks.
        words = line.split(None, 7)
        if len(words) > 6:
            yield UnixSocket(int(words[6]), words[5] == _CONNECTED, words[7] if len(words) > 7 else "")


def unix_peers() -> dict[int, int] | None:
    """Of each Unix socket's inode, that of the socket at the other end: 0 when there is none, or none any more.

    None where the kernel does not tell.
    """
    body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, 0, _SHOW_PEER, _ANY, _ANY)
    request = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_ALL, 1, 0) + body
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asking:
            asking.settimeout(_PATIENCE)
            asking.send(request)
            return dict(_answers(asking))
    except (OSError, struct.error):
        return None


def _answers(asking: socket.socket) -> Iterator[tuple[int, int]]:
    """Raises OSError when the kernel refuses."""
    while True:
        heard = asking.recv(_BUFFER)
        place = 0
        while place < len(heard):
            length, kind, *_ = _HEADER.unpack_from(heard, place)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size:
                raise OSError("the kernel does not answer sock_diag")
            yield _peer_in(heard, place + _HEADER.size, place + length)
            place += _aligned(length)


def _peer_in(heard: bytes, place: int, end: int) -> tuple[int, int]:
    inode: int = _ANSWER.unpack_from(heard, place)[4]
    place += _ANSWER.size
    while place < end:
        length, kind = _ATTRIBUTE.unpack_from(heard, place)
        if kind == _PEER:
            peer: int = _NUMBER.unpack_from(heard, place + _ATTRIBUTE.size)[0]
            return inode, peer
        place += max(_aligned(length), _ATTRIBUTE.size)
    return inode, 0


def _aligned(length: int) -> int:
    return (length + 3) & ~3
