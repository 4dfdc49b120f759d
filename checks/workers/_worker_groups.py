"""Shared by the rules about worker groups: those to judge, phrases, and miniatures for examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from verl_doctor.checks.shared.ray import a_cluster, a_node, joins
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob
from verl_doctor.toolkit.collectors.ray.worker_groups import WorkerGroup, ended_jobs, worker_groups
from verl_doctor.toolkit.text import ranges

JOB = RayJob(job="01000000", namespace="train", address="10.0.0.5", pid=500, worker="driver")


def a_rank(rank: int, of: int = 2, prefix: str = "abc123", **changes: Any) -> RayActor:
    """One rank of a worker group on the first node, named as by verl, on the GPU with the same number."""
    whole = RayActor(
        actor=f"{prefix}-{rank}",
        state="ALIVE",
        name=f"{prefix}WorkerDict_0:{rank}",
        namespace="train",
        class_name="create_colocated_worker_cls.<locals>.WorkerDict",
        job=JOB.job,
        node="n1",
        address="10.0.0.5",
        pid=1000 + rank,
        worker=f"{prefix}-worker-{rank}",
        owner="driver",
        gpus=(rank,),
        variables={"RANK": str(rank), "WORLD_SIZE": str(of), "WG_PREFIX": prefix},
        roles=("actor_rollout_ref", "critic"),
    )
    return replace(whole, **changes)


def runs(*actors: RayActor, finished: bool = False, **changes: Any) -> RayClusters:
    """A cluster in which a job created these actors."""
    jobs = (replace(JOB, finished=finished),)
    return joins(a_cluster(a_node(), **{"jobs": jobs, "actors": actors, **changes}))


def running_groups(clusters: RayClusters) -> Iterator[tuple[RayCluster, WorkerGroup]]:
    """Yield the worker groups of running jobs with at least one actor that is not dead.

    The clusters are those that concern this target.
    """
    for cluster in clusters.concerned:
        if cluster.has_read("actors") and cluster.has_read("jobs"):
            ended = ended_jobs(cluster)
            for group in worker_groups(cluster):
                if not group.over and group.job not in ended:
                    yield cluster, group


def named(group: WorkerGroup) -> str:
    """A worker group in a sentence: "worker group abc123WorkerDict of job 01000000"."""
    return f"worker group {group.name} of job {group.job}"


def why_dead(actor: RayActor) -> str:
    """Why an actor ended, without the general advice that Ray appends."""
    return actor.died.partition(" Some common causes")[0] or actor.end or "Ray gives no reason"


def ranks(numbers: Iterable[int], of: int) -> str:
    """Ranks in a sentence: "rank 3 of 8", "ranks 1-4 of 8"."""
    every = sorted(numbers)
    return f"{'rank' if len(every) == 1 else 'ranks'} {ranges(every)}" + (f" of {of}" if of else "")
