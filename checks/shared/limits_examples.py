"""Machines for the examples of the rules about limits."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.host.limits import ControlGroups, Group, HostLimits, Limit, Limits
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources


def an_h200_node(shell: Limits | None = None, *raylets: Limits, online: int = 32) -> HostLimits:
    """The limits of a healthy node, for examples."""
    return HostLimits(
        shell=shell or healthy(),
        raylets=raylets,
        online=online,
        tasks=150,
        all_tasks=150,
        threads_max=2062399,
        pid_max=4194304,
    )


def healthy(pid: int = 0, cpus: int = 32, groups: tuple[Group, ...] = (), **others: Limit) -> Limits:
    """A process without limits that matter, for examples."""
    unlimited = Limit(soft=None, hard=None)
    limits = Limits(
        pid=pid,
        files=Limit(soft=1048576, hard=1048576),
        processes=unlimited,
        locked=unlimited,
        allowed=cpus,
        groups=ControlGroups(groups),
        ray_cpus=float(cpus) if pid else None,
    )
    return replace(limits, **others)  # type: ignore[arg-type]


def gpus(number: int, cpus: float = 32) -> Resources:
    """A machine with this many GPUs, for examples."""
    return Resources(gpus=(Gpu(name="NVIDIA H200", memory=143771),) * number, cpus=cpus, memory=250 << 30)
