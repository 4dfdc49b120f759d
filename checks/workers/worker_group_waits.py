"""RAY126: a worker group waits for resources that others have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.shared.ray import a_cluster, a_node, joins, resources_text, short
from verl_doctor.checks.shared.ray_holders import holders, in_words
from verl_doctor.checks.shared.ray_room import bundles, never_placed
from verl_doctor.checks.shared.running_job import of_another_job
from verl_doctor.checks.workers._worker_groups import JOB, a_rank, named, ranks, running_groups, runs
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup
from verl_doctor.toolkit.collectors.ray.worker_groups import Member, WorkerGroup, ended_jobs
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_MOST = 4
_ROUNDING = 1e-3  # Ray counts in ten-thousandths
_POOL = RayGroup(
    group="pg1",
    state="CREATED",
    name="global_poolverl_group_2:0",
    namespace="train",
    job=JOB.job,
    bundles=({"GPU": 1.0, "CPU": 1.0},) * 2,
    nodes=("n1", "n1"),
)
_NEXT = replace(
    _POOL,
    group="pg2",
    state="PENDING",
    name="otherverl_group_8:0",
    bundles=({"GPU": 1.0},) * 8,
    nodes=("",) * 8,
)
_FULL = a_node(free={"CPU": 62.0, "GPU": 6.0})
_LATER = replace(JOB, job="02000000")


def _in_pool(rank: int, prefix: str, state: str = "ALIVE") -> RayActor:
    return a_rank(
        rank,
        prefix=prefix,
        state=state,
        group="pg1",
        node="n1" if state == "ALIVE" else "",
        needs={f"GPU_group_{rank}_pg1": 1.0, "GPU_group_pg1": 1.0},
    )


_FIRST = (_in_pool(0, "one"), _in_pool(1, "one"))
_SECOND = (_in_pool(0, "two", "PENDING_CREATION"), _in_pool(1, "two", "PENDING_CREATION"))


def _examples() -> list[Example]:
    return [
        Example("a group that has its place", (runs(*_FIRST, groups=(_POOL,)),)),
        Example("a group that is being started", (runs(*_SECOND, groups=(_POOL,)),)),
        Example(
            "the group can never be placed, which RAY115 reports",
            (
                joins(
                    a_cluster(_FULL, jobs=(JOB,), groups=(_POOL, replace(_NEXT, bundles=({"GPU": 1.0},) * 9)))
                ),
            ),
        ),
        Example(
            "free resources that the group has not been given yet",
            (joins(a_cluster(jobs=(JOB,), groups=(_NEXT,))),),
        ),
        Example(
            "in another Ray than the one that the script starts",
            (replace(joins(a_cluster(_FULL, jobs=(JOB,), groups=(_POOL, _NEXT))), joined="", choice="new"),),
        ),
        Example(
            "in another Ray than the one that is named",
            (
                RayClusters(
                    clusters=(a_cluster(_FULL, jobs=(JOB,), groups=(_POOL, _NEXT)),),
                    joined="10.0.0.7:6379",
                    choice="named",
                ),
            ),
        ),
        Example(
            "two groups of one job",
            (joins(a_cluster(_FULL, jobs=(JOB,), groups=(_POOL, _NEXT))),),
            "placement group otherverl_group_8:0 of job 01000000 waits for 8 GPU, and 6 are free",
        ),
        Example(
            "after another job",
            (joins(a_cluster(_FULL, jobs=(JOB, _LATER), groups=(_POOL, replace(_NEXT, job=_LATER.job)))),),
            "waits for 8 GPU, and 6 are free",
        ),
        Example(
            "two groups in one pool",
            (runs(*_FIRST, *_SECOND, groups=(_POOL,)),),
            (
                "ranks 0, 1 of 2 of worker group twoWorkerDict of job 01000000 wait for GPU that other "
                "actors of their placement group have"
            ),
        ),
    ]


@check("RAY126", phase="workers", examples=_examples)
def worker_group_waits(clusters: RayClusters, launch: Launch | Unknown) -> Iterator[Finding]:
    """A worker group waits for resources that others hold.

    ## Why it matters

    verl waits for the placement groups of its resource pools, and then for their workers, without a time
    limit and without a message. What the same job holds, or what a finished job left behind, never becomes
    free.

    ## How to fix

    The evidence shows what holds the missing resources. Two worker groups in one resource pool need
    `max_colocate_count` of at least two, or one process for both (`create_colocated_worker_cls`).
    `verl-doctor clean` shows and removes what finished jobs left behind.
    """
    for cluster in clusters.concerned:
        if all(map(cluster.has_read, ("nodes", "jobs", "groups", "actors"))):
            ended = ended_jobs(cluster)
            for group in cluster.groups:
                if group.state == "PENDING" and group.job not in ended:
                    yield from _unplaced(group, cluster, launch)
    for cluster, members in running_groups(clusters):
        if cluster.has_read("groups"):
            yield from _crowded(members, cluster, launch)


def _unplaced(group: RayGroup, cluster: RayCluster, launch: Launch | Unknown) -> Iterator[Finding]:
    wanted: Counter[str] = Counter()
    for bundle in group.bundles:
        wanted.update(bundle)
    free = {name: sum(node.free.get(name, 0) for node in cluster.alive) for name in wanted}
    short_of = [name for name, amount in wanted.items() if free[name] < amount]
    if not short_of or never_placed(group, cluster):
        return
    name = short_of[0]
    found = holders(cluster, name)
    own = any(
        other_group.job == group.job
        and other_group.state == "CREATED"
        and any(name in bundle for bundle in other_group.bundles)
        for other_group in cluster.groups
    )
    yield Finding(
        (
            f"placement group {group.name or short(group.group)} of job {group.job} waits for "
            f"{wanted[name]:g} {name}, and {free[name]:g} are free"
        ),
        Evidence(
            in_words(found, name) or "Ray does not report who holds them",
            bundles(group),
            f"the GCS at {cluster.address}",
        ),
        subject=Subject("resource", group.name or short(group.group), group.job),
        remedy="run verl-doctor clean to see what finished jobs left behind"
        if any(holder.left for holder in found)
        else "give the job's pools fewer resources: what one pool holds never becomes free for another"
        if own
        else "wait for the jobs that hold them, or end one",
        severity=of_another_job(launch) if own or any(holder.left for holder in found) else "warning",
    )


def _crowded(group: WorkerGroup, cluster: RayCluster, launch: Launch | Unknown) -> Iterator[Finding]:
    waiting = group.of("waiting")
    rooms = {name: _Room(pool, cluster) for name, pool in _pools(waiting, cluster).items()}
    full = [
        member
        for member in waiting
        if member.actor.group in rooms and rooms[member.actor.group].lacks(member.actor)
    ]
    if not full:
        return
    first = full[0].actor
    room = rooms[first.group]
    kinds = {
        name.partition("_group_")[0]
        for member in full
        for name in rooms[member.actor.group].lacks(member.actor)
    }
    neighbours = (
        f"{actor.name or actor.class_name}: {resources_text(_own(actor.needs))}"
        for actor in room.inside
        if room.lacks(first) & actor.needs.keys()
    )
    verb, their = ("waits", "its") if len(full) == 1 else ("wait", "their")
    yield Finding(
        f"{ranks((member.rank for member in full), group.world_size)} of {named(group)} {verb} for "
        f"{' and '.join(sorted(kinds))} that other actors of {their} placement group have",
        Evidence(
            listed(neighbours, _MOST), resources_text(_own(first.needs)), f"the GCS at {cluster.address}"
        ),
        subject=Subject("worker group", group.name),
        severity=of_another_job(launch),
        remedy="let both groups share one process, or give the resource pool a larger max_colocate_count",
    )


def _pools(waiting: Iterable[Member], cluster: RayCluster) -> dict[str, RayGroup]:
    """The placement groups of these members that have been placed."""
    wanted = {member.actor.group for member in waiting}
    return {
        group.group: group for group in cluster.groups if group.group in wanted and group.state == "CREATED"
    }


class _Room:
    """What a placement group has in its bundles, and what live actors use of it."""

    def __init__(self, group: RayGroup, cluster: RayCluster) -> None:
        self.inside = [
            actor for actor in cluster.actors if actor.state == "ALIVE" and actor.group == group.group
        ]
        self._has = {
            f"{name}_group_{number}_{group.group}": amount
            for number, bundle in enumerate(group.bundles)
            for name, amount in bundle.items()
        }
        self._taken: Counter[str] = Counter()
        for actor in self.inside:
            self._taken.update(actor.needs)

    def lacks(self, actor: RayActor) -> set[str]:
        """The resources of its bundle that an actor requests and that are used up."""
        return {
            name
            for name, amount in actor.needs.items()
            if name in self._has and self._taken[name] + amount > self._has[name] + _ROUNDING
        }


def _own(needs: Mapping[str, float]) -> Mapping[str, float]:
    """The needs of an actor in its placement group, under the plain names of resources."""
    return {
        name.partition("_group_")[0]: amount
        for name, amount in needs.items()
        if not name.startswith("bundle_group")
    }
