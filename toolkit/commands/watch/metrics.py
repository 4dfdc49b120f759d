"""This machine's resources that a job can exhaust: how much is used, the total, and the consequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.system.cgroups import Group
from verl_doctor.toolkit.system.file_systems import Space

_MIB = 1 << 20
# Parts of the whole beyond which Ray acts, and the variables that move them (ray_config_def.h).
_SPILLS_UNTIL = ("RAY_local_fs_capacity_threshold", 0.95)
_KILLS_FROM = ("RAY_memory_usage_threshold", 0.95)


@dataclass(frozen=True)
class Gauge:
    """A resource: `used` of `limit`, in bytes or as a number, and the consequence.

    `limit` is where it happens, possibly before everything is used.
    """

    name: str
    used: float
    limit: float
    unit: Literal["bytes", "number"]
    then: str

    @property
    def part(self) -> float:
        """The used part of the limit, 1 when it is reached."""
        return self.used / self.limit if self.limit > 0 else 1.0


@dataclass(frozen=True)
class Stores:
    """One sample; an `Unknown` has no gauge. `named` are further folders to watch."""

    folders: Folders | Unknown
    shared_memory: Space | None
    memory: HostMemory | Unknown
    limits: HostLimits | Unknown
    gpus: Gpus | Unknown
    variables: Variables
    named: tuple[tuple[str, Space], ...] = ()


def gauges(stores: Stores) -> tuple[Gauge, ...]:
    """Return every gauge, each name once."""
    found = (*_disks(stores), *_memory(stores), *_threads(stores.limits), *_gpus(stores.gpus))
    return tuple({gauge.name: gauge for gauge in reversed(found)}.values())[::-1]


def _disks(stores: Stores) -> Iterator[Gauge]:
    known = () if isinstance(stores.folders, Unknown) else stores.folders.folders
    spaces: set[tuple[object, ...]] = set()
    for folder in known:
        if not folder.size or folder.free is None:
            continue
        # Folders of one file system have the same space; two looks at one may differ by what was written
        # between them.
        space = (folder.kind, folder.size, folder.inodes)
        used = folder.size - folder.free
        limit = folder.size * _threshold(_SPILLS_UNTIL, stores.variables)
        if folder.use == "Ray's sessions" and (*space, "spilling") not in spaces and limit > used:
            spaces.add((*space, "spilling"))
            yield Gauge(f"{folder.path} (spilling)", used, limit, "bytes", "Ray stops spilling")
        if space not in spaces:
            spaces.add(space)
            yield Gauge(folder.path, used, folder.size, "bytes", "the disk is full")
            if folder.inodes and folder.inodes_free is not None:
                taken = folder.inodes - folder.inodes_free
                yield Gauge(
                    f"{folder.path} (files)", taken, folder.inodes, "number", "no more files can be created"
                )
    for path, space_there in stores.named:
        yield Gauge(path, space_there.size - space_there.free, space_there.size, "bytes", "the disk is full")
    if (shared := stores.shared_memory) is not None and shared.size:
        yield Gauge("/dev/shm", shared.size - shared.free, shared.size, "bytes", "shared memory is full")  # noqa: S108


def _memory(stores: Stores) -> Iterator[Gauge]:
    """Yield the machine's memory and that of the scarcest control group: Ray acts before either runs out."""
    acts = _threshold(_KILLS_FROM, stores.variables)
    memory, limits = stores.memory, stores.limits
    if not isinstance(memory, Unknown) and memory.total and memory.available is not None:
        used = memory.total - memory.available
        yield Gauge("memory", used, memory.total * acts, "bytes", "Ray ends workers")
    group = None if isinstance(limits, Unknown) else _scarcest(limits, "memory")
    if group is not None and group.memory and group.memory_used is not None:
        name = f"memory of {group.folder}"
        yield Gauge(name, group.memory_used, group.memory * acts, "bytes", "Ray ends workers")


def _threads(limits: HostLimits | Unknown) -> Iterator[Gauge]:
    if isinstance(limits, Unknown):
        return
    group = _scarcest(limits, "pids")
    if group is not None and group.pids and group.pids_used is not None:
        name = f"threads of {group.folder}"
        yield Gauge(name, group.pids_used, group.pids, "number", "no thread can be started")
    most = min((limit for limit in (limits.threads_max, limits.pid_max) if limit), default=None)
    if most and limits.all_tasks is not None:
        yield Gauge("threads", limits.all_tasks, most, "number", "no thread can be started")


def _gpus(gpus: Gpus | Unknown) -> Iterator[Gauge]:
    for device in () if isinstance(gpus, Unknown) else gpus.devices:
        if device.memory is not None:
            used, total = (device.memory.total - device.memory.free) * _MIB, device.memory.total * _MIB
            yield Gauge(f"GPU {device.index}", used, total, "bytes", "allocations on the GPU fail")


def _scarcest(limits: HostLimits, what: Literal["memory", "pids"]) -> Group | None:
    """Return the group with the least memory left among those of the raylets, or else of this shell."""
    found = [getattr(subject.groups, what) for subject in limits.subjects]
    named = [group for group in found if group is not None]
    return min(named, key=lambda group: getattr(group, f"{what}_left"), default=None)


def _threshold(known: tuple[str, float], variables: Variables) -> float:
    name, usual = known
    value = variables.get(name)
    return float(value) if value.replace(".", "", 1).isdigit() and 0 < float(value) <= 1 else usual
