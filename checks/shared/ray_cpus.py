"""The CPUs available to a job, those configured for Ray, and those that verl requests."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.checks.shared.configuration import GPUS, number_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import Limits
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets
from verl_doctor.toolkit.facts import Unknown

NUM_CPUS = ("ray_kwargs.ray_init.num_cpus", "ray_init.num_cpus")
_QUEUE = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
_SLURM = "SLURM_CPUS_ON_NODE"
_TICKETS = 3  # in verl 0.7 to 0.9, if its sources do not show it


@dataclass(frozen=True)
class Bound:
    """An amount, a description of what sets it, and where that was read."""

    amount: float
    by: str
    read_from: str = ""


def cpus_of(limits: Limits, variables: Variables) -> Bound | None:
    """The CPUs that a process may use, and what limits them. Slurm does not always enforce its allocation."""
    quota, within = limits.groups.cpus, limits.groups.cpuset
    bounds = [
        Bound(limits.allowed, "the CPU affinity") if limits.allowed else None,
        Bound(quota.cpus, f"the CPU quota of {quota.folder}") if quota and quota.cpus else None,
        Bound(within.cpuset, f"the CPU set of {within.folder}") if within and within.cpuset else None,
        Bound(int(given), _SLURM) if (given := variables.get(_SLURM)).isdigit() and int(given) else None,
    ]
    return min(filter(None, bounds), key=lambda bound: bound.amount, default=None)


def cpus_to_give(
    configuration: Configuration | Unknown, gpus: int, cpus: float, tickets: RayTickets | Unknown
) -> int:
    """The number of CPUs for Ray: those available, but no fewer than verl requests, or it waits forever."""
    return max(int(cpus), tickets_for(configuration, number_of(configuration, GPUS) or gpus, tickets))


def tickets_for(configuration: Configuration | Unknown, gpus: int, tickets: RayTickets | Unknown) -> int:
    """The CPUs that verl requests from Ray on one machine.

    It requests them for each GPU, for its TaskRunner, and for each part of its queue.

    Actors that request none are placed even when none is free (tested with Ray 2.60).
    """
    units = 0
    if not isinstance(configuration, Unknown) and configuration.get("transfer_queue.enable") is not False:
        units = number_of(configuration, _QUEUE)
    each = _TICKETS if isinstance(tickets, Unknown) else tickets.of_each_gpu
    return each * gpus + 1 + (units + 1 if units else 0)


def num_cpus_key(configuration: Configuration | Unknown) -> str:
    """The key with which this verl passes the number of CPUs to Ray."""
    if isinstance(configuration, Unknown):
        return NUM_CPUS[0]
    return next((key for key in NUM_CPUS if configuration.has(key)), NUM_CPUS[0])


def given_cpus(configuration: Configuration | Unknown) -> int:
    """The number of CPUs that the launch command gives Ray; 0 if it sets none."""
    return max(number_of(configuration, key) for key in NUM_CPUS)
