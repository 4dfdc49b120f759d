"""RAY128: the register center of a worker group has died."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verl_doctor.checks.workers._worker_groups import (
    JOB,
    a_rank,
    named,
    ranks,
    running_groups,
    runs,
    why_dead,
)
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor
from verl_doctor.toolkit.collectors.ray.worker_groups import REGISTER_CENTRE
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _centre(state: str = "DEAD", **changes: Any) -> RayActor:
    return RayActor(
        actor="centre",
        state=state,
        name="abc123_register_center",
        namespace="train",
        class_name="WorkerGroupRegisterCenter",
        job=JOB.job,
        **changes,
    )


_LATE = a_rank(1, state="PENDING_CREATION", node="")


def _examples() -> list[Example]:
    return [
        Example("a verl that has none", (runs(a_rank(0), a_rank(1)),)),
        Example("alive", (runs(a_rank(0), a_rank(1), _centre("ALIVE")),)),
        Example(
            "the register center ended with rank 0, which RAY125 reports",
            (runs(a_rank(0, state="DEAD"), a_rank(1), _centre()),),
        ),
        Example("made again", (runs(a_rank(0), a_rank(1), _centre(), _centre("ALIVE")),)),
        Example(
            "died",
            (runs(a_rank(0), a_rank(1), _centre(died="The actor died because its node has died.")),),
            "the register center of worker group abc123WorkerDict of job 01000000 is dead",
        ),
        Example(
            "before all ranks had started", (runs(a_rank(0), _LATE, _centre()),), "rank 1 of 2 never starts"
        ),
    ]


@check("RAY128", severity="warning", examples=_examples)
def register_centre_missing(clusters: RayClusters) -> Iterator[Finding]:
    """The register center of a worker group has died.

    ## Why it matters

    Up to verl 0.5.0, rank 0 of each worker group creates a small actor, PREFIX_register_center. From it the
    other ranks get the address of rank 0, and the managers of the asynchronous rollout get the nodes of the
    ranks. Without it they fail: `Failed to look up actor with name 'PREFIX_register_center'`.

    ## How to fix

    Find out why it died; it needs neither CPU nor GPU, and little memory. Then restart the job. Since 0.6.0
    verl works without it.
    """
    for cluster, group in running_groups(clusters):
        name = group.prefix + REGISTER_CENTRE
        centres = [
            actor
            for actor in cluster.actors
            if (actor.name, actor.job, actor.namespace) == (name, group.job, group.namespace)
        ]
        first = next((member for member in group.members if member.rank == 0), None)
        if (
            not centres
            or first is None
            or first.state == "dead"
            or any(centre.state != "DEAD" for centre in centres)
        ):
            continue
        late = [member.rank for member in group.of("waiting", "starting")] + list(group.absent)
        verb = "starts" if len(late) == 1 else "start"
        yield Finding(
            f"the register center of {named(group)} is dead"
            + (f": {ranks(late, group.world_size)} never {verb}" if late else ""),
            Evidence(
                f"{name}: {why_dead(centres[-1])}",
                "alive",
                f"the GCS at {cluster.address}",
            ),
            subject=Subject("actor", name),
            remedy="restart the job",
        )
