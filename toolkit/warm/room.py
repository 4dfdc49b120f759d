"""How much of a model fits in memory: the kernel keeps file pages only while nothing else needs the memory.

File pages count against the control group of the reader, like its other memory
(https://docs.kernel.org/admin-guide/cgroup-v2.html, "Memory Ownership").
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.host.memory import HostMemory, memory
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.cgroups import ControlGroups, control_groups

_KEPT_FREE = 32  # the fraction that stays free, because a full cache evicts what was just read
_LEAST_FREE = 32 * 1024 * 1024  # bytes of a control group that the reader itself and the kernel's tables use


@dataclass(frozen=True)
class Room:
    """How many bytes of files can be resident at the same time, including those that already are.

    `limit` names the limiting factor.

    `size` is None if this machine does not report it.
    """

    size: int | None = None
    limit: str = ""


UNDETERMINED = Room()


def room(machine: Machine) -> Room:
    """Return the smallest room that the machine and the control groups of this process leave."""
    host = memory.collect(machine=machine)
    return least(host if isinstance(host, HostMemory) else HostMemory(None), control_groups(machine))


def least(host: HostMemory, groups: ControlGroups) -> Room:
    """Return the smallest free memory.

    Memory of processes counts as used; cached file pages do not, because they are evictable.
    """
    found = []
    if host.available is not None:
        found.append(Room(max(0, host.available - (host.total or 0) // _KEPT_FREE), "memory of this machine"))
    found += [
        Room(
            max(0, int(group.memory_left) - max(group.memory // _KEPT_FREE, _LEAST_FREE)),
            f"memory limit of {group.folder}",
        )
        for group in groups.groups
        if group.memory is not None
    ]
    return min(found, key=lambda room: room.size or 0, default=UNDETERMINED)
