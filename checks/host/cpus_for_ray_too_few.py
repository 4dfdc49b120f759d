"""HOST116: Ray will have fewer CPUs than the job requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.configuration import GPUS, NODES, configured, number_of
from verl_doctor.checks.shared.job_here import HERE
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.checks.shared.ray_cpus import NUM_CPUS, given_cpus, num_cpus_key, tickets_for
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _example(
    counted: int,
    *words: str,
    limits: HostLimits | None = None,
    each: int = 3,
    start: tuple[RayStart, ...] = (),
) -> tuple[object, ...]:
    return (
        *configured(*words),
        RayTickets(of_each_gpu=each, read_from="/env/verl/single_controller/ray/base.py:192"),
        RayCpus(counted=counted, read_from="/sys/fs/cgroup/cpu.max", version="2.49.2"),
        limits or an_h200_node(),
        gpus(8),
        RayStarts(start),
        HERE,
    )


def _examples() -> list[Example]:
    return [
        Example("enough", _example(32)),
        Example("a verl that reserves a CPU for each GPU", _example(16, each=1)),
        Example("an override raises the number", _example(8, f"{NUM_CPUS[0]}=32")),
        Example(
            "ray start sets the number",
            _example(8, start=(RayStart(path="run.sh", line=3, options={"num-cpus": "$N"}),)),
        ),
        Example(
            "more GPUs than exist, which another rule reports", _example(8, "trainer.n_gpus_per_node=16")
        ),
        Example("a raylet with enough", _example(8, limits=an_h200_node(None, healthy(7, 64)))),
        Example(
            "a pod with 8 CPUs and 8 GPUs", _example(8), "requests 25 CPUs from Ray here, but Ray will have 8"
        ),
        Example("an override sets too few", _example(64, f"{NUM_CPUS[0]}=16"), "Ray will have 16"),
        Example(
            "a raylet with too few",
            _example(64, limits=an_h200_node(None, replace(healthy(7), ray_cpus=8.0))),
            "the raylet (process 7) has 8",
        ),
    ]


@check("HOST116", phase="ray", severity="error", examples=_examples)
def cpus_for_ray_too_few(
    configuration: Configuration,
    tickets: RayTickets,
    ray: RayCpus | Unknown,
    limits: HostLimits,
    resources: Resources,
    starts: RayStarts | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """Ray will have fewer CPUs than the job requests.

    ## Why it matters

    verl reserves CPUs with each GPU, one for its TaskRunner and one for each part of its queue. When Ray
    counts fewer, for example in a container with a small CPU share, it waits forever for more: the log ends
    without an error, or repeats `No available node types can fulfill resource request`.

    ## How to fix

    Give Ray at least as many CPUs as the job requests. They are only tickets: no process is bound to a core
    by them.
    """
    wanted = number_of(configuration, GPUS)
    if not here.certain or not resources.gpus or not 0 < wanted <= len(resources.gpus):
        return
    alone = number_of(configuration, NODES) <= 1
    need = tickets_for(configuration, wanted, tickets) if alone else tickets.of_each_gpu * wanted
    for subject in limits.raylets:
        if subject.ray_cpus and subject.ray_cpus < need:
            yield _finding(
                configuration,
                need,
                tickets,
                f"{subject.name} has {subject.ray_cpus:g}",
                "its command line",
                # ray.init refuses num_cpus when it joins a running Ray.
                remedy=f"run ray stop, then ray start --num-cpus={need}",
            )
    given = given_cpus(configuration)
    if limits.raylets or (not given and isinstance(starts, RayStarts) and starts.gives("num-cpus")):
        return
    have = given or (0 if isinstance(ray, Unknown) else ray.counted)
    if 0 < have < need:
        read_from = num_cpus_key(configuration) if given or isinstance(ray, Unknown) else ray.read_from
        yield _finding(configuration, need, tickets, f"Ray will have {have}", read_from)


def _finding(
    configuration: Configuration, need: int, tickets: RayTickets, have: str, read_from: str, remedy: str = ""
) -> Finding:
    return Finding(
        f"the job requests {need} CPUs from Ray here, but {have}: it will wait forever",
        Evidence(
            found=f"{have}, by {read_from}",
            wanted=(
                f"{need}: {tickets.of_each_gpu} with each of {number_of(configuration, GPUS)} GPUs, plus "
                "the driver's actors"
            ),
            read_from=tickets.read_from,
        ),
        subject=Subject("resource", "CPU"),
        remedy=remedy or f"set {num_cpus_key(configuration)}={need}, or run ray start --num-cpus={need}",
    )
