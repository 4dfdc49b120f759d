"""HOST101: Ray counts more CPUs than the job may use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.host._ray_needs import started_at_once
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.hidden_groups import hidden_groups
from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.checks.shared.ray_cpus import (
    NUM_CPUS,
    Bound,
    cpus_of,
    cpus_to_give,
    given_cpus,
    num_cpus_key,
)
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

# A few workers too many start in time. Twice as many as CPUs deserve a warning, fewer a hint.
_HARMLESS = 8
_HARMFUL = 2.0
_ALL = RayCpus(counted=128, read_from="/sys/devices/system/cpu/online", version="2.49.2")
_NO_SCRIPT = Absent("no launch script")
_FEW = healthy(cpus=8)
_POD = healthy(cpus=128, groups=(Group("/sys/fs/cgroup/kubepods.slice/pod1", cpus=16.0),))


def _irrelevant(limits: HostLimits, ray: RayCpus | Unknown) -> str | None:
    if not limits.raylets and isinstance(ray, Unknown):
        return f"the CPUs that Ray would count are unknown: {ray.reason}"
    return None


def _example(limits: HostLimits, ray: RayCpus = _ALL, *more: object, number: int = 8) -> tuple[object, ...]:
    given = {type(fact): fact for fact in more}
    return (
        limits,
        ray,
        gpus(number),
        HERE,
        (RayTickets, Unknown("no verl")),
        given.get(Variables, Variables()),
        given.get(Configuration, configured()[0]),
        given.get(RayStarts, RayStarts()),
    )


def _examples() -> list[Example]:
    return [
        Example("as many as there are", _example(an_h200_node(healthy(cpus=128)))),
        Example(
            "an override sets the number", _example(an_h200_node(_FEW), _ALL, *configured(f"{NUM_CPUS[0]}=8"))
        ),
        Example(
            "ray start sets the number",
            _example(
                an_h200_node(_FEW),
                _ALL,
                RayStarts((RayStart(path="run.sh", line=3, options={"num-cpus": "$N"}),)),
            ),
        ),
        Example("a raylet with the right number", _example(an_h200_node(_FEW, healthy(7, cpus=8)))),
        Example(
            "a Slurm job with 8 of 128",
            _example(an_h200_node(_FEW), number=1),
            "Ray will count 128 CPUs here, but the job may use 8",
        ),
        Example(
            "the job requests as many as Ray counts",
            _example(an_h200_node(_FEW), RayCpus(counted=16, read_from="", version="")),
        ),
        Example(
            "a pod whose limit is set in a group that Ray does not read",
            _example(an_h200_node(_POD)),
            "the job may use 16",
        ),
        Example(
            "Slurm gave 8 and enforces nothing",
            _example(an_h200_node(healthy(cpus=128)), _ALL, Variables({"SLURM_CPUS_ON_NODE": "8"})),
            "may use 8",
        ),
        Example(
            "a raylet set to more than the machine has",
            _example(an_h200_node(None, replace(_FEW, pid=7, ray_cpus=96.0), online=8)),
        ),
        Example(
            "a raylet counted",
            _example(an_h200_node(None, replace(_FEW, pid=7, ray_cpus=128.0), online=128)),
            "the raylet (process 7) offers 128 CPUs, but may use 8",
        ),
        Example(
            "less than one CPU",
            _example(
                an_h200_node(_FEW), RayCpus(counted=0, read_from="/sys/fs/cgroup/cpu.max", version="2.49.2")
            ),
            "Ray will count no CPU",
        ),
    ]


@check("HOST101", severity="warning", applies=_irrelevant, unjudged=hidden_groups, examples=_examples)
def ray_counts_too_many_cpus(
    limits: HostLimits,
    ray: RayCpus | Unknown,
    variables: Variables,
    configuration: Configuration | Unknown,
    starts: RayStarts | Unknown,
    resources: Resources,
    here: JobHere,
    tickets: RayTickets | Unknown,
) -> Iterator[Finding]:
    """Ray counts more CPUs than the job may use.

    ## Why it matters

    Ray starts a worker for each CPU it counts, all at once, when the first driver connects. It ignores the
    CPU affinity, with which Slurm confines a job, and every control group but the one mounted at the top. 128
    workers on 8 CPUs are too slow to register within 60 s: `Some workers of the worker process have not
    registered within the timeout`, or a job that hangs after `Started a local Ray instance`. Each worker also
    has about fifty threads.

    ## How to fix

    Give Ray the number: with the override in the finding if verl starts Ray, or with `ray start
    --num-cpus=N`. A raylet that is already running must be restarted.
    """
    number = len(resources.gpus or ())
    for subject in limits.raylets:
        bound = cpus_of(subject, variables)
        if bound is None or not subject.ray_cpus:
            continue
        right = cpus_to_give(configuration, number, bound.amount, tickets)
        started = started_at_once(subject.ray_cpus, limits)
        if started > right + _HARMLESS:
            yield Finding(
                f"{subject.name} offers {subject.ray_cpus:g} CPUs, but may use {bound.amount:g}",
                Evidence(
                    found=f"{subject.ray_cpus:g} CPUs in its --static_resource_list",
                    wanted=_wanted(right, bound),
                    read_from=bound.by,
                ),
                subject=Subject("resource", "CPU"),
                remedy=f"stop this Ray, then run ray start --num-cpus={right}",
                severity=hint(here) or (None if started >= _HARMFUL * right else "info"),
            )
    number_given = given_cpus(configuration) or (not isinstance(starts, Unknown) and starts.gives("num-cpus"))
    bound = cpus_of(limits.shell, variables)
    if limits.raylets or number_given or isinstance(ray, Unknown) or bound is None:
        return
    right = cpus_to_give(configuration, number, bound.amount, tickets)
    if ray.counted < 1 or ray.counted > right + _HARMLESS:
        yield Finding(
            f"Ray will count {counted(ray.counted, 'CPU') if ray.counted else 'no CPU'} here,"
            f" but the job may use {bound.amount:g}",
            Evidence(
                found=f"Ray {ray.version} reads {ray.read_from}",
                wanted=_wanted(right, bound),
                read_from=bound.by,
            ),
            subject=Subject("resource", "CPU"),
            remedy=f"add {num_cpus_key(configuration)}={right} to the launch command,"
            f" or start Ray with ray start --num-cpus={right}",
            severity=hint(here) or ("info" if 0 < ray.counted < _HARMFUL * right else None),
        )


def _wanted(right: int, bound: Bound) -> str:
    if right > bound.amount:
        return f"{right}: the job requests that many from Ray, and waits forever if there are fewer"
    return f"{right} or fewer"
