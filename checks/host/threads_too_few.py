"""HOST102: fewer threads may be started than the job needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.host._ray_needs import actors, started_at_once, threads_needed
from verl_doctor.checks.host._threads import LEAN
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.hidden_groups import hidden_groups
from verl_doctor.checks.shared.job_here import HERE, at_most_warning, gpus_used
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.checks.shared.ray_cpus import Bound, cpus_of, cpus_to_give, given_cpus, num_cpus_key
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits, Limit, Limits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_POD = "/sys/fs/cgroup/kubepods.slice/pod1"
_WORTH_IT = 0.9
_RAY = RayCpus(counted=32, read_from="/sys/devices/system/cpu/online")


def _example(limits: HostLimits, ray: RayCpus = _RAY, **variables: str) -> tuple[object, ...]:
    return (
        limits,
        ray,
        gpus(8),
        Variables(),
        configured()[0],
        JobVariables(variables),
        HERE,
        (Raylets, Absent("no raylet runs here")),
    )


def _pids(most: int, used: int) -> tuple[Group, ...]:
    return Group(f"{_POD}/container"), Group(_POD, pids=most, pids_used=used)


def _examples() -> list[Example]:
    return [
        Example("without limits", _example(an_h200_node())),
        Example("enough", _example(an_h200_node(healthy(groups=_pids(16384, 200))))),
        Example(
            "root is exempt from ulimit -u",
            _example(an_h200_node(replace(healthy(processes=Limit(soft=1024, hard=1024)), exempt=True))),
        ),
        Example(
            "enough for lean workers",
            _example(
                an_h200_node(healthy(groups=_pids(3400, 200))), RAY_worker_num_grpc_internal_threads="1"
            ),
        ),
        Example(
            "a group above the container's",
            _example(an_h200_node(healthy(groups=_pids(2048, 300)))),
            f"{_POD}/pids.max",
        ),
        Example(
            "a user's limit",
            _example(an_h200_node(healthy(processes=Limit(soft=1024, hard=4096)))),
            "its ulimit -u",
        ),
        Example("few process IDs", _example(replace(an_h200_node(), pid_max=3000)), "kernel.pid_max"),
        Example(
            "a raylet with a lower limit than the shell",
            _example(an_h200_node(None, healthy(7, processes=Limit(soft=1024, hard=4096)))),
            "the raylet (process 7)",
        ),
    ]


@check("HOST102", phase="workers", severity="error", unjudged=hidden_groups, examples=_examples)
def threads_too_few(
    limits: HostLimits,
    ray: RayCpus | Unknown,
    resources: Resources,
    variables: Variables,
    configuration: Configuration | Unknown,
    job: JobVariables,
    raylets: Raylets | Unknown,
    here: JobHere,
    tickets: RayTickets | Unknown,
) -> Iterator[Finding]:
    """The job needs more threads than it may start.

    ## Why it matters

    Linux counts threads like processes, and a job has thousands: each Ray worker has about fifty, because
    gRPC starts several for each core. At the limit the job fails with `pthread_create failed: Resource
    temporarily unavailable` or `can't start new thread`, or hangs because a worker never registers. A
    container's limit is often set in a parent control group (`docker run --pids-limit`, the kubelet's
    podPidsLimit), where `ulimit` does not show it.

    ## How to fix

    Raise the limit in the finding, or need less: give Ray fewer CPUs, because it starts a worker for each,
    and set RAY_worker_num_grpc_internal_threads=1. The need is computed from measurements without GPUs and
    may be off by a third.
    """
    cores = limits.online or 0
    number = gpus_used(here, resources, configuration)
    for subject in limits.subjects:
        bound = cpus_of(subject, variables)
        of_ray = 0 if isinstance(ray, Unknown) else ray.counted
        prestarted = started_at_once(subject.ray_cpus or given_cpus(configuration) or of_ray, limits)
        needed = max(prestarted if here.certain else 0, actors(configuration, number))
        running, lean = bool(subject.pid), _is_lean(subject, job, raylets)
        need = threads_needed(cores, needed, number, running=running, lean=lean)
        room = _room(subject, limits)
        if room is None or room.amount >= need:
            continue
        leaner = threads_needed(cores, needed, number, running=running, lean=True)
        fewer = cpus_to_give(configuration, number, bound.amount if bound else prestarted, tickets)
        fewest = max(fewer, actors(configuration, number))
        least = threads_needed(cores, fewest, number, running=running, lean=True)
        yield Finding(
            (
                f"{subject.name} may start {room.amount:g} more threads, but the job needs about {need}: "
                f"{room.by}"
            ),
            Evidence(
                found=f"{room.amount:g} left",
                wanted=f"about {need} = {'' if subject.pid else 'those of Ray itself, '}"
                f"those of {needed} workers and {counted(number, 'GPU')} on {cores} cores",
                read_from=room.read_from,
            ),
            subject=Subject("limit", "threads"),
            remedy=f"raise it by {need - room.amount:g} or more"
            + (
                f"; with {LEAN}=1 and {num_cpus_key(configuration)}={fewer} the job needs about {least}"
                if least < _WORTH_IT * need
                else ""
            ),
            fix="fewer-threads" if leaner <= room.amount else None,
            severity=at_most_warning(here) or (None if room.amount < need / 2 else "warning"),
        )


def _is_lean(subject: Limits, variables: JobVariables, raylets: Raylets | Unknown) -> bool:
    if not subject.pid:
        return variables.get(LEAN) == "1"
    running = () if isinstance(raylets, Unknown) else raylets.running
    return any(raylet.pid == subject.pid and raylet.variables.get(LEAN) == "1" for raylet in running)


def _room(subject: Limits, limits: HostLimits) -> Bound | None:
    """How many more threads this process and its children may start, and the limit that sets it."""
    return min(_bounds(subject, limits), key=lambda bound: bound.amount, default=None)


def _bounds(subject: Limits, limits: HostLimits) -> Iterator[Bound]:
    group, own, tasks = subject.groups.pids, subject.processes, limits.tasks or 0
    if own and own.soft is not None and not subject.exempt:
        hard = "unlimited" if own.hard is None else own.hard
        yield Bound(
            max(0, own.soft - tasks),
            f"its ulimit -u is {own.soft} (at most {hard}), and this user has {tasks}",
            f"/proc/{subject.pid or 'self'}/limits",
        )
    if group:
        file = f"{group.folder}/pids.max"
        yield Bound(group.pids_left, f"{file} is {group.pids}, and {group.pids_used} are in use", file)
    every = limits.all_tasks or 0
    for name, most in (("kernel.threads-max", limits.threads_max), ("kernel.pid_max", limits.pid_max)):
        if most:
            file = f"/proc/sys/{name.replace('.', '/')}"
            yield Bound(max(0, most - every), f"{name} is {most}, and {every} are in use", file)
