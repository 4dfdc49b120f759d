"""RAY112: the cluster has fewer free CPUs than the job requests."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import GPUS, NODES, configured
from verl_doctor.checks.shared.ray import a_cluster, a_node, free, joins, requested_of_ray, total
from verl_doctor.checks.shared.ray_cpus import tickets_for
from verl_doctor.checks.shared.ray_holders import holders, in_words
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Severity, Subject, check
from verl_doctor.toolkit.text import counted

_EACH = RayTickets(of_each_gpu=3, read_from="/env/verl/single_controller/ray/base.py:192")
_FEW = a_cluster(a_node(resources={"CPU": 16.0, "GPU": 8.0}))
_TAKEN = a_cluster(
    a_node(free={"CPU": 4.0, "GPU": 8.0}),
    jobs=(RayJob("01000000", finished=True),),
    actors=(
        RayActor(
            actor="cd" * 16, state="ALIVE", name="store", job="01000000", needs={"CPU": 60.0}, detached=True
        ),
    ),
)


def _examples() -> list[Example]:
    return [
        Example("enough", (joins(a_cluster()), *configured(), _EACH)),
        Example(
            "a verl that reserves a CPU for each GPU",
            (joins(_FEW), *configured(), RayTickets(of_each_gpu=1, read_from="base.py:192")),
        ),
        Example(
            "the table was not read",
            (joins(a_cluster(a_node(resources={}), refused="x")), *configured(), _EACH),
        ),
        Example(
            "a head with few",
            (joins(_FEW), *configured(), _EACH),
            "requests 25 CPUs, but the Ray at 10.0.0.5:6379 has 16",
        ),
        Example("left by a finished job", (joins(_TAKEN), *configured(), _EACH), "4 of 64 are free"),
    ]


@check("RAY112", phase="ray", requires={"HOST116", "RAY111"}, examples=_examples)
def cpus_in_ray_too_few(
    clusters: RayClusters, configuration: Configuration, tickets: RayTickets
) -> Iterator[Finding]:
    """The cluster has fewer free CPUs than the job requests.

    ## Why it matters

    Ray's CPUs are tickets: verl requests several with each GPU, one for its TaskRunner and one for each part
    of its queue. If too few are left, Ray waits forever for more, and at most prints `No available node types
    can fulfill resource request`.

    ## How to fix

    Start the raylets with more: `ray start --num-cpus=`. No process is bound to a core by them. `verl-doctor
    clean` shows and removes what finished jobs left behind.
    """
    cluster = clusters.chosen
    nodes, each = requested_of_ray(configuration)
    if cluster is None or not nodes or not cluster.has_read("nodes"):
        return
    need = tickets_for(configuration, nodes * each, tickets)
    have, idle = total(cluster.alive, "CPU"), free(cluster.alive, "CPU")
    if idle >= need:
        return
    found = holders(cluster, "CPU") if have >= need else ()
    left = [holder for holder in found if holder.left]
    severity: Severity | None = "warning" if found and not left else None
    yield Finding(
        f"the job requests {need} CPUs, but the Ray at {cluster.address} has {have:g}"
        if have < need
        else (
            f"the job requests {need} CPUs, but only {idle:g} of {have:g} are free in the Ray at "
            f"{cluster.address}"
        ),
        Evidence(
            in_words(found, "CPU") or f"{idle:g} of {have:g} CPUs on {counted(len(cluster.alive), 'node')}",
            (
                f"{need}: {tickets.of_each_gpu} with each of {nodes * each} GPUs ({NODES}={nodes}, "
                f"{GPUS}={each}), plus the driver's actors"
            ),
            f"the GCS at {cluster.address}; {tickets.read_from}",
        ),
        subject=Subject("resource", "CPU"),
        remedy="run verl-doctor clean to see what finished jobs left behind"
        if left
        else "wait for that job, or stop it"
        if found
        else "restart the raylets with a larger ray start --num-cpus= on each node",
        severity=severity,
    )
