"""Judges which actors and placement groups finished jobs left in a Ray cluster, from what its GCS reports.

The GCS does not record which processes hold a handle of a detached actor, or look it up by its name. So
nothing counts as left over while any driver is connected, or while anything runs that is meant to run without
one: either may need it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayJob

YOUNG = 120.0  # seconds since a job ended; the next one of the same script may be about to connect
CLEANER = "verl-doctor"  # the namespace of the driver that removes leftovers
_INTERNAL = "_ray_internal"  # Ray's own namespaces and names begin with it
_SERVE = "serve"
_OVER = ("DEAD", "REMOVED")


@dataclass(frozen=True)
class LeftInRay:
    """One actor or group: what shows that it is unused, or why it is `kept`.

    `age` is the seconds since its job ended.
    """

    subject: RayActor | RayGroup
    proof: tuple[str, ...] = ()
    kept: str = ""
    age: float | None = None


def left_in(cluster: RayCluster, now: float, *, mine: bool) -> Iterator[LeftInRay]:
    """Yield all that finished jobs left in a cluster.

    `mine`: this user started it; `now` is in seconds since the epoch.
    """
    everything = _in_doubt(cluster, now, mine=mine)
    left: set[str] = set()
    for actor in cluster.actors:
        if actor.state not in _OVER and actor.detached and _is_a_jobs(actor, cluster):
            why = everything or _unknown_job(actor, cluster) or _nameless(actor)
            left |= set() if why else {actor.actor}
            yield _judged(actor, cluster, now, why)
    for group in cluster.groups:
        if group.state not in _OVER and _is_a_jobs(group, cluster):
            why = everything or _unknown_job(group, cluster) or _used(group, cluster, left)
            yield _judged(group, cluster, now, why)


def _is_a_jobs(subject: RayActor | RayGroup, cluster: RayCluster) -> bool:
    """Return whether it was created by a job that is no longer connected."""
    job = cluster.job(subject.job)
    return not is_internal(subject.name, subject.namespace) and (job is None or job.finished)


def _judged(subject: RayActor | RayGroup, cluster: RayCluster, now: float, why: str) -> LeftInRay:
    job = cluster.job(subject.job)
    age = now - job.ended if job else None
    return LeftInRay(subject, () if why else tuple(_proof(subject, job)), why, age)


def is_internal(name: str, namespace: str) -> bool:
    """Return whether it belongs to Ray itself, or to Ray Serve, which runs without a driver."""
    return (
        name.startswith((_INTERNAL, "SERVE_"))
        or namespace.startswith((_INTERNAL, "SUPERVISOR_ACTOR_RAY_NAMESPACE", "_dataset_stats_actor"))
        or namespace == _SERVE
    )


def _in_doubt(cluster: RayCluster, now: float, *, mine: bool) -> str:
    """Return why everything in a cluster is kept, "" if nothing requires that."""
    if not mine:
        return (
            "another user started this Ray, or it runs only on other machines, whose users have to clean it"
        )
    if not all(map(cluster.has_read, ("jobs", "actors", "groups"))):
        return "not everything in this Ray could be read"
    drivers = [job for job in cluster.jobs if not job.finished and not job.namespace.startswith(_INTERNAL)]
    if drivers:
        return (
            f"a driver is connected that may use it (job {drivers[0].job}, process {drivers[0].pid} on "
            f"{drivers[0].address})"
        )
    services = [actor for actor in cluster.actors if actor.state not in _OVER and _works_alone(actor)]
    if services:
        return f"{services[0].name or services[0].class_name} runs without a driver and may use it"
    ended = max((job.ended for job in cluster.jobs if job.namespace != CLEANER), default=0.0)
    return (
        "a job ended less than two minutes ago, and the next may be about to start"
        if now - ended < YOUNG
        else ""
    )


def _works_alone(actor: RayActor) -> bool:
    """Return whether an actor belongs to Ray Serve or starts a submitted job."""
    return is_internal(actor.name, actor.namespace) and (
        actor.namespace == _SERVE or actor.name.startswith(("SERVE_", f"{_INTERNAL}_job_actor"))
    )


def _unknown_job(subject: RayActor | RayGroup, cluster: RayCluster) -> str:
    known = cluster.job(subject.job) is not None
    return "" if known else "its job is not in the table of jobs: it is unknown whether it has finished"


def _nameless(actor: RayActor) -> str:
    return "" if actor.name else "it has no name by which Ray can end it"


def _used(group: RayGroup, cluster: RayCluster, left: Collection[str]) -> str:
    inside = [
        actor
        for actor in cluster.actors
        if actor.state not in _OVER
        and actor.actor not in left
        and (actor.group == group.group or actor.actor == group.actor)
    ]
    return (
        f"actor {inside[0].name or inside[0].class_name} is in it, or made it, and is kept" if inside else ""
    )


def _proof(subject: RayActor | RayGroup, job: RayJob | None) -> Iterator[str]:
    yield f"job {subject.job}, which made it, has finished" + (
        f": {job.entrypoint}" if job and job.entrypoint else ""
    )
    if subject.detached:
        yield "it is detached, so Ray itself never ends it"
    yield "no driver is connected to this Ray that could hold or find it"
