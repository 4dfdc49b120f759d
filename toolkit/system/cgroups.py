"""The limits of a process's control groups (version 2, 1 or both): its own and those of all above.

The limits of all groups above apply as well, and a container or a batch system often sets them there:
https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/. Groups
above the container's own are hidden from it; the kernel reports their limits only for version 1's memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import FileSystem, file_systems
from verl_doctor.toolkit.system.process_table import threads

# Version 1 writes "no limit" as the largest number of pages that fits.
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Group:
    """One control group, by its folder. None stands for what it does not limit or does not report.

    `cpus` is the quota in CPUs, `cpuset` a number of CPUs, `pids` counts processes and threads, `memory` is
    in bytes: the lower of the limit at which the kernel kills and the limit at which it throttles;
    `memory_used` excludes cached file contents. `oom_kills` counts the processes, here and below, that were
    killed for lack of memory since the group was created.
    """

    folder: str
    cpus: float | None = None
    cpuset: int | None = None
    pids: int | None = None
    pids_used: int | None = None
    memory: int | None = None
    memory_used: int | None = None
    oom_kills: int | None = None

    @property
    def pids_left(self) -> float:
        """How many more processes and threads it allows."""
        return _left(self.pids, self.pids_used)

    @property
    def memory_left(self) -> float:
        """How many more bytes it allows."""
        return _left(self.memory, self.memory_used)


@dataclass(frozen=True)
class ControlGroups:
    """The groups of a process, the innermost of each hierarchy first. Empty if the kernel reports none.

    `hidden` means that the kernel names groups, but no hierarchy is mounted from which to read their limits.
    """

    groups: tuple[Group, ...] = ()
    hidden: bool = False

    @property
    def cpus(self) -> Group | None:
        """The group with the smallest quota of CPUs."""
        limited = [group for group in self.groups if group.cpus is not None]
        return min(limited, key=lambda group: group.cpus or 0.0, default=None)

    @property
    def cpuset(self) -> Group | None:
        """The group with the fewest CPUs; the outermost of those, because the groups below inherit it."""
        limited = [group for group in reversed(self.groups) if group.cpuset]
        return min(limited, key=lambda group: group.cpuset or 0, default=None)

    @property
    def pids(self) -> Group | None:
        """The group that allows the fewest further threads."""
        limited = [group for group in self.groups if group.pids is not None]
        return min(limited, key=lambda group: group.pids_left, default=None)

    @property
    def memory(self) -> Group | None:
        """The group with the least memory left."""
        limited = [group for group in self.groups if group.memory is not None]
        return min(limited, key=lambda group: group.memory_left, default=None)

    @property
    def memory_limit(self) -> int | None:
        """The lowest limit on memory, regardless of how much is used."""
        return min((group.memory for group in self.groups if group.memory is not None), default=None)

    @property
    def oom_kills(self) -> Group | None:
        """The group whose memory limit caused the kernel to kill processes.

        Without a limit, the innermost group that counts kills.
        """
        counting = [group for group in self.groups if group.oom_kills is not None]
        limiting = [group for group in counting if group.memory is not None]
        return limiting[-1] if limiting else counting[0] if counting else None


def control_groups(machine: Machine, process: str = "self") -> ControlGroups:
    """Return the groups of a process, by its number, as seen through this process's mounts."""
    listed = machine.read(f"/proc/{process}/cgroup") or ""
    found = [_group(machine, folder) for folder in _folders_of(machine, listed)]
    named = any(line.partition(":")[2].partition(":")[2].startswith("/") for line in listed.splitlines())
    return ControlGroups(
        tuple(group for group in found if group != Group(group.folder)), hidden=named and not found
    )


def is_frozen(machine: Machine, pid: int) -> bool:
    """Return whether a visible group of any thread of a process is (about to be) frozen and can be thawed."""
    listed = {machine.read(f"/proc/{pid}/task/{task}/cgroup") or "" for task in threads(pid, machine)}
    return any(
        (machine.read(f"{folder}/freezer.state") or "THAWED").strip() != "THAWED"
        or _table(machine.read(f"{folder}/cgroup.events") or "").get("frozen") == 1
        for text in listed
        for folder in _folders_of(machine, text)
    )


def _folders_of(machine: Machine, listed: str) -> Iterator[str]:
    """Yield the folders of the groups in a list of /proc/PID/cgroup."""
    mounts = [mount for mount in file_systems(machine) if mount.kind in ("cgroup", "cgroup2")]
    for line in listed.splitlines():
        # hierarchy-ID:controllers:path, with no controllers for version 2 (cgroups(7))
        controllers, _, path = line.partition(":")[2].partition(":")
        mount = _mount_of(controllers, mounts) if path else None
        if mount is not None:
            yield from _folders(machine, mount, path)


def _mount_of(controllers: str, mounts: list[FileSystem]) -> FileSystem | None:
    """Return where a hierarchy is mounted first; further mounts are often parts of it."""
    wanted = set(controllers.split(","))
    for mount in mounts:
        if mount.kind == "cgroup2" if not controllers else wanted <= set(mount.options):
            return mount
    return None


def _folders(machine: Machine, mount: FileSystem, path: str) -> Iterator[str]:
    """Yield the folders of a group and the groups above it, up to the mount; those beyond are not visible."""
    inside = os.path.relpath(path, mount.root)
    below = PurePosixPath(mount.mounted_on, "" if inside.startswith("..") else inside)
    for folder in (below, *below.parents):
        if os.path.isdir(machine.at(str(folder))):
            yield str(folder)
        if str(folder) == mount.mounted_on:
            return


def _group(machine: Machine, folder: str) -> Group:
    def read(name: str) -> str:
        return (machine.read(f"{folder}/{name}") or "").strip()

    def first(*names: str) -> int | None:
        return next((number for name in names if (number := _number(read(name))) is not None), None)

    stat = _table(read("memory.stat"))
    limits = [
        limit
        for limit in (
            first("memory.max", "memory.limit_in_bytes"),
            first("memory.high"),
            stat.get("hierarchical_memory_limit"),
        )
        if limit is not None and limit < _UNLIMITED
    ]
    used = first("memory.current", "memory.usage_in_bytes")
    cached = sum(stat.get(f"total_{kind}", stat.get(kind, 0)) for kind in ("active_file", "inactive_file"))
    kills = {**_table(read("memory.oom_control")), **_table(read("memory.events"))}
    return Group(
        folder,
        cpus=_quota(read("cpu.max") or f"{read('cpu.cfs_quota_us')} {read('cpu.cfs_period_us')}"),
        cpuset=count_of_list(
            read("cpuset.cpus.effective") or read("cpuset.effective_cpus") or read("cpuset.cpus")
        ),
        pids=first("pids.max"),
        pids_used=first("pids.current"),
        memory=min(limits, default=None),
        memory_used=None if used is None else max(0, used - cached),
        oom_kills=kills.get("oom_kill"),
    )


def _quota(text: str) -> float | None:
    """Return a quota in CPUs: microseconds out of a period, "max" or -1 for no quota."""
    words = [_number(word) for word in text.split()]
    quota, period = words if len(words) == 2 else (None, None)
    return quota / period if quota and period else None


def count_of_list(text: str) -> int | None:
    """Count the numbers in a kernel list: "0-3,8" has five. None if it is empty or not such a list."""
    if not re.fullmatch(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", text):
        return None
    ends = [part.split("-") for part in text.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def _table(text: str) -> dict[str, int]:
    """Parse lines of a name and a number."""
    pairs = [line.split() for line in text.splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _left(most: int | None, used: int | None) -> float:
    return float("inf") if most is None else max(0, most - (used or 0))
