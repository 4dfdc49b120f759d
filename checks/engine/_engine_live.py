"""Shared by the rules about engine processes in a running Ray.

It covers those that do not find their workers, and the examples' actors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verl_doctor.checks.shared.ray import ADDRESS, a_cluster
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob
from verl_doctor.toolkit.rule import Subject

# To Ray, an engine process is a driver. Its command is multiprocessing's spawn, or the title that newer vLLM
# sets.
_ENGINE = re.compile(r"\bspawn_main\b|VLLM::EngineCore")
_SERVER = re.compile(r"Async\w*LLM\w*Server")  # verl's class of the parent: AsyncvLLMServer
_WORKER = re.compile(
    r"\w*WorkerDict_\d+:\d+"
)  # single_controller/ray/base.py: {prefix}WorkerDict_{group}:{rank}


@dataclass(frozen=True)
class LostEngine:
    """An engine process in `joined` whose namespace has no worker, and the `workers` in `theirs`.

    The Ray of its parent is `theirs`.
    """

    job: RayJob
    joined: RayCluster
    theirs: RayCluster
    workers: tuple[RayActor, ...]

    @property
    def who(self) -> str:
        """The process, as text for a sentence."""
        return f"the engine process of the async rollout (process {self.job.pid} on {self.job.address})"

    @property
    def subject(self) -> Subject:
        """The cluster that it joined, and its job ID there: to Ray, a driver is a job."""
        return Subject("cluster", self.joined.address, self.job.job)

    @property
    def namespaces(self) -> str:
        """The namespaces of its workers, as text."""
        names = sorted({worker.namespace for worker in self.workers})
        return f"namespace{'s' * (len(names) > 1)} {', '.join(names)}"


def lost_engines(clusters: RayClusters) -> Iterator[LostEngine]:
    """Yield every engine process that joined one of these clusters and does not find its workers there.

    Its parent is the last server that started on its node before it, in its own cluster if there is one.
    """
    read = [
        cluster_read
        for cluster_read in clusters.clusters
        if cluster_read.has_read("actors") and cluster_read.has_read("jobs")
    ]
    for joined in read:
        others = [cluster_read for cluster_read in read if cluster_read is not joined]
        for job in joined.jobs:
            if _ENGINE.search(job.entrypoint) and not _workers(joined, job.namespace):
                theirs = next(
                    (cluster_read for cluster_read in (joined, *others) if _has_server_of(job, cluster_read)),
                    None,
                )
                workers = _workers(theirs) if theirs is not None else ()
                if theirs is not None and workers and not _is_replaced(job, theirs):
                    yield LostEngine(job, joined, theirs, workers)


def _workers(cluster: RayCluster, namespace: str | None = None) -> tuple[RayActor, ...]:
    """The workers that are alive, in one namespace if given."""
    return tuple(
        actor
        for actor in cluster.actors
        if actor.state == "ALIVE" and _WORKER.fullmatch(actor.name) and namespace in (None, actor.namespace)
    )


def _has_server_of(job: RayJob, cluster: RayCluster) -> bool:
    """Whether the cluster has a live server that may have started an engine process.

    The server is on the node of the process, and started before it.
    """
    return any(
        actor.state == "ALIVE"
        and _SERVER.fullmatch(actor.class_name)
        and actor.address == job.address
        and actor.started <= job.started
        for actor in cluster.actors
    )


def _is_replaced(lost: RayJob, cluster: RayCluster) -> bool:
    """Whether another engine process that finds its workers has started there since."""
    return any(
        job.started > lost.started and job.address == lost.address and _workers(cluster, job.namespace)
        for job in cluster.jobs
        if _ENGINE.search(job.entrypoint)
    )


# --- examples


def actor(name: str, namespace: str = "train", **changes: Any) -> RayActor:
    """A worker, or another actor if a class is given; all run on one node."""
    kind = {"class_name": "WorkerDict", "address": "10.0.0.5", "pid": 90, "started": 100.0}
    return RayActor(
        actor=name or "server", state="ALIVE", name=name, namespace=namespace, **{**kind, **changes}
    )


def engine(namespace: str = "train", **changes: Any) -> RayJob:
    """An engine process, as the driver that Ray lists."""
    command = '/env/bin/python -c "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=44)"'
    fields = {"address": "10.0.0.5", "pid": 99, "started": 120.0, "entrypoint": command}
    return RayJob(job="02000000", namespace=namespace, **{**fields, **changes})


SERVER = actor("", class_name="AsyncvLLMServer", started=110.0)
WORKERS = tuple(actor(f"abc123WorkerDict_0:{rank}") for rank in range(2))
ELSEWHERE = tuple(actor(f"abc123WorkerDict_0:{rank}", "other") for rank in range(2))


def running(
    *actors: RayActor, jobs: tuple[RayJob, ...] = (), address: str = ADDRESS, **changes: Any
) -> RayCluster:
    """A cluster in which a job runs."""
    return a_cluster(actors=actors, jobs=jobs, address=address, **changes)
