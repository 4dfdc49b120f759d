"""The TCP connections of this network namespace, out of /proc/net/tcp and /proc/net/tcp6 (proc(5))."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.machine import Machine

_ESTABLISHED = "01"


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


def connections(machine: Machine) -> Iterator[Connection]:
    """All TCP sockets of this namespace."""
    for name in ("tcp", "tcp6"):
        for line in (machine.read(f"/proc/net/{name}") or "").splitlines()[1:]:
            words = line.split()
            if (
                len(words) > 9
            ):  # number, local, remote, state, queues, timer, retransmitted, user, timeout, inode
                yield Connection(int(words[9]), _end(words[1]), _end(words[2]), words[3] == _ESTABLISHED)


def _end(written: str) -> End:
    """Read 32-bit words in the order of the machine's bytes: "0100007F:84C1" is 127.0.0.1, port 33985."""
    digits, _, port = written.partition(":")
    packed = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return End(str(mapped or address), int(port, 16))
