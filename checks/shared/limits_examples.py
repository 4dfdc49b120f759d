"""Machines for the examples of the rules about limits."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.host.limits import ControlGroups, Group, HostLimits, Limit, Limits
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources


def an_h200_node(shell: Limits | None = None, *raylets: Limits, online: int = 32) -> HostLimits:
    """The limits of a healthy node, for examples."""
    return HostLimits(shell or healthy(), raylets, online, 150, 150, 2062399, 4194304)


def healthy(pid: int = 0, cpus: int = 32, groups: tuple[Group, ...] = (), **others: Limit) -> Limits:
    """A process without limits that matter, for examples."""
    unlimited = Limit(None, None)
    limits = {"files": Limit(1048576, 1048576), "processes": unlimited, "locked": unlimited, **others}
    return Limits(pid, cpus, groups=ControlGroups(groups), ray_cpus=float(cpus) if pid else None, **limits)  # type: ignore[arg-type]


def gpus(number: int, cpus: float = 32) -> Resources:
    """A machine with this many GPUs, for examples."""
    return Resources((Gpu("NVIDIA H200", 143771),) * number, cpus, 250 << 30)
