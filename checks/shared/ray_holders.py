"""What holds a cluster resource: placement groups, actors outside any, and the job that created them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from verl_doctor.checks.shared.ray import short
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.text import listed

_MOST = 4


@dataclass(frozen=True)
class Holder:
    """`what` holds an `amount` of a resource; `left`: the job that created it has ended."""

    what: str
    amount: float
    left: bool


def holders(cluster: RayCluster, resource: str) -> tuple[Holder, ...]:
    """All holders of a resource, largest first."""
    return tuple(sorted(_holders(cluster, resource), key=lambda holder: -holder.amount))


def _holders(cluster: RayCluster, resource: str) -> Iterator[Holder]:
    for group in cluster.groups:
        amount = _held(
            [bundle for bundle, node in zip(group.bundles, group.nodes, strict=False) if node], resource
        )
        if amount and group.state in ("CREATED", "RESCHEDULING"):
            name = group.name or short(group.group)
            yield Holder(
                f"placement group {name} of {_job(cluster, group.job)}", amount, _left(cluster, group.job)
            )
    for actor in cluster.actors:
        amount = actor.needs.get(resource, 0)
        if amount and actor.state == "ALIVE" and not actor.group:
            name = actor.name or f"{actor.class_name} {short(actor.actor)}"
            yield Holder(f"actor {name} of {_job(cluster, actor.job)}", amount, _left(cluster, actor.job))


def _held(bundles: list[Mapping[str, float]], resource: str) -> float:
    return sum(bundle.get(resource, 0) for bundle in bundles)


def _left(cluster: RayCluster, job: str) -> bool:
    found = cluster.job(job)
    return cluster.has_read("jobs") and (found is None or found.finished)


def _job(cluster: RayCluster, job: str) -> str:
    """A job, and whether it is still running."""
    state = "which has ended" if _left(cluster, job) else "which is running"
    return f"job {job}, {state}"


def in_words(found: tuple[Holder, ...], resource: str) -> str:
    """The holders as one line of text."""
    return listed((f"{holder.amount:g} {resource}: {holder.what}" for holder in found), _MOST)
