"""The kernel's limits for the job: CPUs, threads, open files, locked memory.

They are read for this shell and for each raylet.

Ray's workers are children of the raylet and inherit its limits, not those of the shell from which the driver
is started. A raylet started by a service, by another shell or before `ulimit` was raised has different
limits.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.cgroups import ControlGroups, Group, control_groups, count_of_list
from verl_doctor.toolkit.system.process_table import command_of

__all__ = ["ControlGroups", "Group", "HostLimits", "Limit", "Limits", "host_limits"]

# In any user namespace but the first, root is subject to the limits of an ordinary user.
_FIRST_NAMESPACE = ["0", "0", "4294967295"]
_IPC_LOCK, _SYS_ADMIN, _SYS_RESOURCE = 14, 21, 24  # capabilities(7)
# The letters of bash's `ulimit`, and the size of its units in bytes or items.
_ULIMIT = {"files": ("n", 1), "processes": ("u", 1), "locked": ("l", 1024), "addresses": ("v", 1024)}
_ALL_TASKS = re.compile(r"\S+ \S+ \S+ \d+/(\d+)")
_RAYLETS_CPUS = re.compile(r"--static_resource_list=(?:.*,)?CPU,(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Limit:
    """A process's soft limit of a resource (getrlimit(2)), and the hard limit. None is unlimited."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class Limits:
    """The limits of one process. `pid` is 0 for this shell. What could not be read is None.

    `allowed` is the number of CPUs in its affinity. `processes` counts all processes and threads of its user,
    and `exempt`: the kernel does not enforce that limit, since it is root. `locked` and `addresses` are in
    bytes; `may_lock`: the former does not apply. `ray_cpus` are the CPUs that a raylet was given to schedule.
    """

    pid: int = 0
    allowed: int | None = None
    files: Limit | None = None
    processes: Limit | None = None
    exempt: bool = False
    locked: Limit | None = None
    may_lock: bool = False
    addresses: Limit | None = None
    groups: ControlGroups = field(default_factory=ControlGroups)
    ray_cpus: float | None = None

    @property
    def name(self) -> str:
        """The name of the process in messages."""
        return f"the raylet (process {self.pid})" if self.pid else "this shell"

    @property
    def lockable(self) -> float:
        """Bytes of memory that it may lock, infinite without a limit."""
        if self.may_lock or self.locked is None or self.locked.soft is None:
            return math.inf
        return self.locked.soft

    @property
    def cpus(self) -> float | None:
        """The CPUs that it may use: affinity, and the quota and set of every control group."""
        quota, within = self.groups.cpus, self.groups.cpuset
        known = (self.allowed, quota and quota.cpus, within and within.cpuset)
        return min((float(limit) for limit in known if limit), default=None)


@dataclass(frozen=True)
class HostLimits:
    """Limits of this shell and of the raylets that run as this user, and the kernel's own.

    `online` are the machine's CPUs. `tasks` are the visible processes and threads of this user at present,
    `all_tasks` those of all users. `threads_max` and `pid_max` are the kernel's (sysctl). `others` are
    raylets of other users.
    """

    shell: Limits
    raylets: tuple[Limits, ...] = ()
    online: int | None = None
    tasks: int | None = None
    all_tasks: int | None = None
    threads_max: int | None = None
    pid_max: int | None = None
    others: tuple[int, ...] = ()

    @property
    def subjects(self) -> tuple[Limits, ...]:
        """The processes with a job's limits: the raylets, or else this shell, which would start a raylet."""
        return self.raylets or (self.shell,)


@collector()
def host_limits(
    machine: Machine, processes: Processes | Unknown, launch: Launch | Unknown
) -> HostLimits | Unknown:
    """Read /proc for this process, which has the shell's limits, and for the raylets of this user.

    The launch script's `ulimit` calls are applied to the shell's limits.
    """
    if machine.read("/proc/self/limits") is None:
        return Absent("this system reports no limits: it has no /proc/self/limits")
    raylets = () if isinstance(processes, Unknown) else processes.of("raylet")
    mine = [limits_of(machine, raylet.pid) for raylet in raylets if raylet.mine]
    return HostLimits(
        shell=_with_ulimits(limits_of(machine), () if isinstance(launch, Unknown) else launch.limits),
        raylets=tuple(limits for limits in mine if limits.files is not None),
        online=_online(machine),
        tasks=_tasks_of_this_user(machine),
        all_tasks=_all_tasks(machine),
        threads_max=_sysctl(machine, "kernel/threads-max"),
        pid_max=_sysctl(machine, "kernel/pid_max"),
        others=tuple(raylet.pid for raylet in raylets if not raylet.mine),
    )


def limits_of(machine: Machine, pid: int = 0) -> Limits:
    """Return the limits of a process; of this process if no number is given."""
    process = str(pid) if pid else "self"
    rows = dict(_rows(machine.read(f"/proc/{process}/limits") or ""))
    status = _status(machine.read(f"/proc/{process}/status") or "")
    first = (machine.read(f"/proc/{process}/uid_map") or "0 0 4294967295").split() == _FIRST_NAMESPACE
    # Capabilities count only in the first user namespace: a container with its own users has none that
    # matter.
    powers = _bits(status.get("CapEff", "")) if first else 0
    ray_cpus = _RAYLETS_CPUS.search(command_of(pid, machine)) if pid else None
    return Limits(
        pid,
        allowed=count_of_list(status.get("Cpus_allowed_list", "")),
        files=rows.get("Max open files"),
        processes=rows.get("Max processes"),
        # fork() ignores the limit for root and with two capabilities (kernel/fork.c, copy_process).
        exempt=bool(powers & (1 << _SYS_ADMIN | 1 << _SYS_RESOURCE))
        or (first and status.get("Uid", "").split()[:1] == ["0"]),
        locked=rows.get("Max locked memory"),
        may_lock=bool(powers & 1 << _IPC_LOCK),
        addresses=rows.get("Max address space"),
        groups=control_groups(machine, process),
        ray_cpus=float(ray_cpus[1]) if ray_cpus else None,
    )


def _with_ulimits(limits: Limits, calls: Iterable[Sequence[str]]) -> Limits:
    """Return the limits after these calls of bash's `ulimit`."""
    for words in calls:
        soft_alone = hard_alone = False
        for word, value in zip(words, (*words[1:], ""), strict=False):
            letters = set(word[1:]) if word.startswith("-") else set()
            soft_alone |= "S" in letters
            hard_alone |= "H" in letters
            for name, (letter, unit) in _ULIMIT.items():
                old = getattr(limits, name)
                if letter in letters and old is not None and not (hard_alone and not soft_alone):
                    new = _set(old, value, unit, soft_alone=soft_alone, root=limits.exempt)
                    changed: dict[str, Any] = {name: new}
                    limits = replace(limits, **changed)
    return limits


def _set(old: Limit, value: str, unit: int, *, soft_alone: bool, root: bool) -> Limit:
    """Return a limit after `ulimit` sets it. Only root raises a hard limit; for others the command fails."""
    number = value.isascii() and value.isdecimal()
    if value == "hard":
        return Limit(old.hard, old.hard)
    if not number and value != "unlimited":
        return old
    new = int(value) * unit if number else None
    higher = old.hard is not None and (new is None or new > old.hard)
    if higher and (soft_alone or not root):
        return old
    return Limit(new, old.hard if soft_alone else new)


def _rows(text: str) -> Iterator[tuple[str, Limit]]:
    """Yield the lines of /proc/PID/limits: name, soft and hard limit, in columns two blanks apart."""
    for line in text.splitlines()[1:]:
        columns = re.split(r"\s{2,}", line.strip())
        if len(columns) > 2:
            yield columns[0], Limit(_amount(columns[1]), _amount(columns[2]))


def _amount(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _status(text: str) -> dict[str, str]:
    pairs = [line.partition(":") for line in text.splitlines()]
    return {name: value.strip() for name, _, value in pairs}


def _bits(text: str) -> int:
    return int(text, 16) if re.fullmatch(r"[0-9a-f]+", text) else 0


def _online(machine: Machine) -> int | None:
    listed = (machine.read("/sys/devices/system/cpu/online") or "").strip()
    return count_of_list(listed) or (os.cpu_count() if sys.platform == "linux" else None)


def _tasks_of_this_user(machine: Machine) -> int | None:
    """Return the number of threads of all visible processes of this user, as RLIMIT_NPROC counts them."""
    mine = _status(machine.read("/proc/self/status") or "").get("Uid", "").split()[:1]
    try:
        numbers = [name for name in os.listdir(machine.at("/proc")) if name.isdecimal()]  # noqa: PTH208 - names alone
    except OSError:
        return None
    count = 0
    for number in numbers:
        status = _status(machine.read(f"/proc/{number}/status") or "")
        if mine and status.get("Uid", "").split()[:1] == mine:
            count += _amount(status.get("Threads", "")) or 0
    return count or None


def _all_tasks(machine: Machine) -> int | None:
    match = _ALL_TASKS.match(machine.read("/proc/loadavg") or "")
    return int(match[1]) if match else None


def _sysctl(machine: Machine, name: str) -> int | None:
    return _amount((machine.read(f"/proc/sys/{name}") or "").strip())
