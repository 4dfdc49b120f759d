"""InfiniBand and RoCE adapters: their ports as listed by the kernel, and whether a job may use them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_CLASS = "/sys/class/infiniband"
_NO_GID = re.compile(r"[0:]*")


@dataclass(frozen=True)
class Port:
    """One port of an adapter.

    `state` is "ACTIVE", "INIT" or "DOWN", `link` "InfiniBand" or "Ethernet" (RoCE).

    `physical` is "LinkUp", "Polling" or "Disabled", `rate` as the driver reports it ("400 Gb/sec (4X NDR)").
    `gids` are the filled entries of its address table: index and type, "RoCE v2" or "IB/RoCE v1".
    """

    adapter: str
    number: int
    state: str
    physical: str
    link: str
    rate: str = ""
    gids: tuple[tuple[int, str], ...] = ()

    @property
    def active(self) -> bool:
        """Whether it can carry data."""
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        return f"{self.adapter}:{self.number}"


@dataclass(frozen=True)
class Rdma:
    """`devices` are this machine's `/dev/infiniband/uverbs*`, `closed` those that this user may not open."""

    ports: tuple[Port, ...]
    devices: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()

    @property
    def active(self) -> tuple[Port, ...]:
        """Return the ports that can carry data."""
        return tuple(port for port in self.ports if port.active)


@collector()
def rdma(machine: Machine) -> Rdma | Unknown:
    """Read `/sys/class/infiniband`, and check access to `/dev/infiniband`."""
    adapters = _entries(machine, _CLASS)
    if not adapters and not _entries(machine, "/sys/class"):
        return Unknown("this container hides /sys, where InfiniBand and RoCE adapters are listed")
    if not adapters:
        return Absent("this machine shows no InfiniBand or RoCE adapter")
    devices = [
        f"/dev/infiniband/{name}"
        for name in _entries(machine, "/dev/infiniband")
        if name.startswith("uverbs")
    ]
    return Rdma(
        tuple(port for adapter in adapters for port in _ports(machine, adapter)),
        tuple(devices),
        tuple(path for path in devices if not os.access(machine.at(path), os.R_OK | os.W_OK)),
    )


def _ports(machine: Machine, adapter: str) -> Iterator[Port]:
    for number in _entries(machine, f"{_CLASS}/{adapter}/ports"):
        folder = f"{_CLASS}/{adapter}/ports/{number}"

        def attribute(name: str, folder: str = folder) -> str:
            return (machine.read(f"{folder}/{name}") or "").strip()

        if number.isdigit():
            yield Port(
                adapter,
                int(number),
                attribute("state").partition(": ")[2],
                attribute("phys_state").partition(": ")[2],
                attribute("link_layer"),
                attribute("rate"),
                tuple(_gids(machine, folder)),
            )


def _gids(machine: Machine, folder: str) -> Iterator[tuple[int, str]]:
    """Yield the entries that hold an address.

    The type is unreadable if the entry is empty or not visible in this container.
    """
    for index in sorted(int(name) for name in _entries(machine, f"{folder}/gids") if name.isdigit()):
        gid = (machine.read(f"{folder}/gids/{index}") or "").strip()
        if not _NO_GID.fullmatch(gid):
            yield index, (machine.read(f"{folder}/gid_attrs/types/{index}") or "").strip()


def _entries(machine: Machine, folder: str) -> list[str]:
    try:
        return sorted(path.name for path in Path(machine.at(folder)).iterdir())
    except OSError:
        return []
