"""RAY115: a pending placement group can never be placed in this cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.shared.ray import a_cluster, a_node, joins, resources_text, short
from verl_doctor.checks.shared.ray_room import bundles, never_placed
from verl_doctor.checks.shared.running_job import of_another_job
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayGroup, RayJob, RayNode
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_JOB = RayJob("01000000")
_TWO_CPUS = a_node(resources={"CPU": 2.0, "GPU": 1.0})
_QUEUE = RayGroup(
    group="ab" * 16,
    state="PENDING",
    name="queue",
    namespace="",
    job="01000000",
    bundles=({"CPU": 1.0},) * 8,
    nodes=("",) * 8,
    strategy="SPREAD",
    waits_for="NO_RESOURCES",
)


def _waits(group: RayGroup, *nodes: RayNode, finished: bool = False) -> tuple[RayClusters]:
    return (joins(a_cluster(*nodes, jobs=(replace(_JOB, finished=finished),), groups=(group,))),)


def _examples() -> list[Example]:
    return [
        Example("placed", _waits(replace(_QUEUE, state="CREATED"), a_node())),
        Example("the group waits for others to finish", _waits(_QUEUE, a_node(free={}))),
        Example("the job that requested it has ended", _waits(_QUEUE, _TWO_CPUS, finished=True)),
        Example("8 CPUs of 2", _waits(_QUEUE, _TWO_CPUS), "8 times 1 CPU, but all nodes together have 2 CPU"),
        Example(
            "a part that no node has",
            _waits(replace(_QUEUE, bundles=({"GPU": 8.0, "CPU": 1.0},)), _TWO_CPUS),
            "no node has 8 GPU, 1 CPU",
        ),
        Example(
            "all bundles on one node",
            _waits(
                replace(_QUEUE, strategy="STRICT_PACK"),
                _TWO_CPUS,
                replace(_TWO_CPUS, node="n2", resources={"CPU": 7.0}),
            ),
            "no node has 8 CPU",
        ),
        Example(
            "each bundle on a separate node",
            _waits(replace(_QUEUE, strategy="STRICT_SPREAD"), a_node()),
            "it needs 8 nodes, but 1 is alive",
        ),
        Example(
            "Ray itself reports it",
            _waits(replace(_QUEUE, waits_for="INFEASIBLE"), a_node()),
            "Ray reports it as infeasible",
        ),
    ]


@check("RAY115", phase="ray", examples=_examples)
def group_never_placed(clusters: RayClusters, launch: Launch | Unknown) -> Iterator[Finding]:
    """A pending placement group can never be placed in this cluster.

    ## Why it matters

    A driver that waits for it (`ray.get(group.ready())`) waits forever, and nothing is printed: verl seems to
    hang before its first step. Its queue alone requests one CPU for each of
    `transfer_queue.backend.SimpleStorage.num_data_storage_units`, 8 by default; its workers request whole
    nodes.

    ## How to fix

    Request less, or join nodes that have it. CPUs are tickets: `ray start --num-cpus=` may exceed the real
    number. A custom resource must be spelled exactly as in `ray start --resources`.
    """
    for cluster in clusters.concerned:
        if not cluster.has_read("nodes") or not cluster.has_read("groups"):
            continue
        for group in cluster.groups:
            job = cluster.job(group.job)
            why = never_placed(group, cluster) if group.state in ("PENDING", "RESCHEDULING") else ""
            if why and not (job is not None and job.finished):
                yield Finding(
                    (
                        f"placement group {group.name or short(group.group)} of job {group.job} can never "
                        f"be placed: {why}"
                    ),
                    Evidence(
                        f"{bundles(group)}, {group.strategy or 'PACK'}",
                        _totals(cluster),
                        f"the GCS at {cluster.address}",
                    ),
                    severity=of_another_job(launch),
                    subject=Subject("resource", group.name or short(group.group), group.job),
                    remedy=(
                        "request less, or join nodes that have it; CPUs are only a count, set with ray "
                        "start --num-cpus="
                    ),
                )


def _totals(cluster: RayCluster) -> str:
    wanted = ("GPU", "CPU")
    return "; ".join(
        f"{node.address} has {resources_text(_those(wanted, node.resources)) or 'none'}"
        for node in cluster.alive[:6]
    )


def _those(names: Iterable[str], resources: Mapping[str, float]) -> dict[str, float]:
    return {name: resources[name] for name in names if name in resources}
