"""RAY116: an actor requests more than any node of the cluster has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.ray import a_cluster, a_node, joins, resources_text, short
from verl_doctor.checks.shared.running_job import of_another_job
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_ACTOR = RayActor(
    actor="ab" * 16,
    state="PENDING_CREATION",
    name="runner",
    class_name="TaskRunner",
    job="01000000",
    needs={"CPU": 128.0},
)


def _waits(actor: RayActor, *, finished: bool = False) -> tuple[RayClusters]:
    return (joins(a_cluster(a_node(), jobs=(RayJob("01000000", finished=finished),), actors=(actor,))),)


def _examples() -> list[Example]:
    return [
        Example("alive", _waits(replace(_ACTOR, state="ALIVE"))),
        Example("the actor waits for others to finish", _waits(replace(_ACTOR, needs={"CPU": 64.0}))),
        Example(
            "the actor waits for its placement group",
            _waits(replace(_ACTOR, needs={"CPU_group_abab": 1.0}, group="abab")),
        ),
        Example("its job has ended", _waits(_ACTOR, finished=True)),
        Example(
            "more CPUs than a node has",
            _waits(_ACTOR),
            "actor runner (TaskRunner) requests 128 CPU, which no node has",
        ),
        Example("a misspelt resource", _waits(replace(_ACTOR, needs={"gpu": 1.0})), "requests 1 gpu"),
    ]


@check("RAY116", phase="ray", examples=_examples)
def actor_never_placed(clusters: RayClusters, launch: Launch | Unknown) -> Iterator[Finding]:
    """An actor requests more than any node of the cluster has.

    ## Why it matters

    It stays pending, and every caller waits forever. Ray's autoscaler prints `No available node types
    can fulfill resource request` to the driver's output, where it is easily overlooked.

    ## How to fix

    Request what a node has, or start a node with more: `ray start --num-cpus=`, `--resources=`. Resource
    names are case-sensitive: `GPU` and `gpu` are different.
    """
    for cluster in clusters.concerned:
        if not cluster.has_read("nodes") or not cluster.has_read("actors"):
            continue
        for actor in cluster.actors:
            job = cluster.job(actor.job)
            if actor.state not in ("PENDING_CREATION", "RESTARTING") or actor.group or (job and job.finished):
                continue
            if any(
                all(node.resources.get(k, 0) >= v for k, v in actor.needs.items()) for node in cluster.alive
            ):
                continue
            name = (
                f"{actor.name} ({actor.class_name})"
                if actor.name
                else f"{actor.class_name} {short(actor.actor)}"
            )
            yield Finding(
                (
                    f"actor {name} requests {resources_text(actor.needs)}, which no node has: it will never "
                    "start"
                ),
                Evidence(
                    f"{resources_text(actor.needs)}, requested by job {actor.job}",
                    "at most what one node has",
                    f"the GCS at {cluster.address}",
                ),
                severity=of_another_job(launch),
                subject=Subject("actor", actor.name or actor.class_name, actor.job),
                remedy="request less, or start a node that has it: ray start --num-cpus=, --resources=",
            )
