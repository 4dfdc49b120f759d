"""The worker groups of verl in a Ray cluster, assembled from its actors.

They show which rank is alive, dead, waiting or left behind.

verl names the actors of a `RayWorkerGroup` PREFIXCLASS_GROUP:NUMBER, with the index of the placement group
and the index in it, and gives each WG_PREFIX, RANK and WORLD_SIZE (`_create_worker` in
verl/single_controller/ray/base.py, the same from verl 0.1 to 0.9.1). PREFIX is random, or names the purpose
of the group ("rollout_standalone_0").
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob

State = Literal["alive", "starting", "waiting", "restarting", "left behind", "dead"]
"""The state of an actor.

A "starting" actor has its resources and runs its constructor; a "waiting" one has no resources yet. An actor
that is "left behind" runs, although the job that created it has ended.
"""

REGISTER_CENTRE = "_register_center"
"""The name suffix of the actor from which a group's ranks learn where rank 0 is, in verl 0.1 to 0.5.0."""

_ENDING = re.compile(r"_(?P<group>\d+):(?P<number>\d+)")
_FUSED = "FusedWorker_"
_ROLES = re.compile(r"(actor_rollout_ref|actor_rollout|reward_model|\w+?)(?:_|$)")


@dataclass(frozen=True)
class Member:
    """One rank of a worker group: its current or last actor."""

    rank: int
    actor: RayActor
    state: State


@dataclass(frozen=True)
class WorkerGroup:
    """The actors that verl created together, by rank.

    `class_name` omits the enclosing function, `roles` are those that share each process; empty if not
    reported. `world_size` is the value given to the ranks, 0 if unknown.
    """

    prefix: str
    class_name: str
    namespace: str
    job: str
    members: tuple[Member, ...]
    roles: tuple[str, ...] = ()
    world_size: int = 0

    def of(self, *states: State) -> tuple[Member, ...]:
        """Return the members in one of these states."""
        return tuple(member for member in self.members if member.state in states)

    @property
    def absent(self) -> tuple[int, ...]:
        """Return the ranks without an actor: not created yet, or forgotten by Ray."""
        return tuple(sorted(set(range(self.world_size)) - {member.rank for member in self.members}))

    @property
    def lost(self) -> tuple[int, ...]:
        """Return the absent ranks that had an actor: verl creates them in order, and a later rank exists."""
        last = max((member.rank for member in self.members), default=0)
        return tuple(rank for rank in self.absent if rank < last)

    @property
    def over(self) -> bool:
        """Whether nothing of it is left."""
        return all(member.state == "dead" for member in self.members)

    @property
    def name(self) -> str:
        """Return its display name: its prefix and its class."""
        return f"{self.prefix}{self.class_name}"


def worker_groups(cluster: RayCluster) -> tuple[WorkerGroup, ...]:
    """Return all groups of the cluster, latest first, including those of ended jobs that Ray remembers."""
    found: dict[tuple[str, str, str, str], list[tuple[int, int, RayActor]]] = {}
    for actor in cluster.actors:
        if (place := _place(actor)) is not None:
            prefix, group, number = place
            key = actor.namespace, actor.job, prefix, short_class(actor)
            found.setdefault(key, []).append((group, number, actor))
    ended = ended_jobs(cluster)
    made = (_group(key, places, ended) for key, places in found.items())
    return tuple(sorted(made, key=lambda group: (group.over, group.job, group.prefix)))


def state_of(actor: RayActor, ended: Collection[str]) -> State:
    """Return the state of an actor, given the ended jobs."""
    if actor.state == "DEAD":
        return "dead"
    if actor.job in ended:
        return "left behind"
    if actor.state == "ALIVE":
        return "alive"
    if actor.state == "RESTARTING":
        return "restarting"
    return "starting" if actor.node else "waiting"


def ended_jobs(cluster: RayCluster) -> frozenset[str]:
    """Return the jobs known to have ended."""
    return frozenset(job.job for job in cluster.jobs if job.finished)


def short_class(actor: RayActor) -> str:
    """Return the name of its class, without the enclosing function or class."""
    return actor.class_name.rpartition(".")[2]


def is_member(actor: RayActor) -> bool:
    """Return whether it is, or was, a rank of a worker group."""
    return _place(actor) is not None


def _place(actor: RayActor) -> tuple[str, int, int] | None:
    """Return prefix, index of the placement group and index in it; None if in no worker group."""
    stem, mark, _ = actor.name.rpartition("_")
    ending = _ENDING.fullmatch(actor.name[len(stem) :]) if mark else None
    cls = short_class(actor)
    if ending is None or not cls or not stem.endswith(cls):
        return None
    return stem.removesuffix(cls), int(ending["group"]), int(ending["number"])


def _group(
    key: tuple[str, str, str, str], places: list[tuple[int, int, RayActor]], ended: Collection[str]
) -> WorkerGroup:
    namespace, job, prefix, cls = key
    size = 1 + max(number for _, number, _ in places)
    last: dict[int, RayActor] = {}
    for group, number, actor in sorted(places, key=lambda place: _age(place[2])):
        rank = actor.variables.get("RANK", "")
        last[int(rank) if rank.isdecimal() else group * size + number] = actor
    sizes = {actor.variables.get("WORLD_SIZE", "") for actor in last.values()}
    roles = next((actor.roles for actor in last.values() if actor.roles), tuple(_fused_roles(cls)))
    return WorkerGroup(
        prefix,
        cls,
        namespace,
        job,
        tuple(Member(rank, actor, state_of(actor, ended)) for rank, actor in sorted(last.items())),
        roles,
        max((int(size) for size in sizes if size.isdecimal()), default=0),
    )


def _age(actor: RayActor) -> tuple[bool, float]:
    """Sort key whose maximum counts: the living actor, or else the one that ended last."""
    return actor.state != "DEAD", actor.ended


def _fused_roles(cls: str) -> Iterator[str]:
    """Yield the roles in the name of a fused worker: "FusedWorker_actor_rollout_critic" has two."""
    if cls.startswith(_FUSED):
        yield from (match[1] for match in _ROLES.finditer(cls.removeprefix(_FUSED)))


def others(cluster: RayCluster) -> tuple[RayActor, ...]:
    """Return the actors that are members of no worker group and have not ended."""
    return tuple(actor for actor in cluster.actors if actor.state != "DEAD" and not is_member(actor))


def makers(cluster: RayCluster) -> Mapping[str, RayActor | RayJob]:
    """Return the living actors and drivers that may have created an actor that is not detached.

    Whoever created it keeps it. The keys are Ray's IDs of the processes.

    An `owner` that is not among them may be a task: Ray ends what a task created with it. The GCS does not
    report other holders of a handle.
    """
    found: dict[str, RayActor | RayJob] = {
        maker.worker: maker for maker in cluster.jobs if not maker.finished
    }
    found.update((maker.worker, maker) for maker in cluster.actors if maker.state != "DEAD")
    return {worker: maker for worker, maker in found.items() if worker}
