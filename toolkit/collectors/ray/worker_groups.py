"""The worker groups of verl in a Ray cluster, put together from its actors: which rank is alive, dead, waiting or left behind.

verl names the actors of a `RayWorkerGroup` PREFIXCLASS_GROUP:NUMBER, with the number of the placement group and that within it, and
gives each WG_PREFIX, RANK and WORLD_SIZE (`_create_worker` in verl/single_controller/ray/base.py, the same from verl 0.1 to 0.9.1).
PREFIX is random, or says what a group is for ("rollout_standalone_0").
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob

State = Literal["alive", "starting", "waiting", "restarting", "left behind", "dead"]
"""What has become of an actor.

"starting" ones have their resources and run their constructor, "waiting" ones have not been given any. One that is "left behind"
runs, and the job that made it has ended.
"""

REGISTER_CENTRE = "_register_center"
"""How the name of the actor ends that tells a group's ranks where rank 0 is, in verl 0.1 to 0.5.0."""

_ENDING = re.compile(r"_(?P<group>\d+):(?P<number>\d+)")
_FUSED = "FusedWorker_"
_ROLES = re.compile(r"(actor_rollout_ref|actor_rollout|reward_model|\w+?)(?:_|$)")


@dataclass(frozen=True)
class Member:
    """One rank of a worker group: the actor that has it, or had it last."""

    rank: int
    actor: RayActor
    state: State


@dataclass(frozen=True)
class WorkerGroup:
    """The actors that verl made together, by rank.

    `class_name` is without the function that it stands in, `roles` are those that share each process; empty where nobody tells.
    `world_size` is what the ranks were told, 0 when that is not known.
    """

    prefix: str
    class_name: str
    namespace: str
    job: str
    members: tuple[Member, ...]
    roles: tuple[str, ...] = ()
    world_size: int = 0

    def of(self, *states: State) -> tuple[Member, ...]:
        """The members in one of these states."""
        return tuple(member for member in self.members if member.state in states)

    @property
    def absent(self) -> tuple[int, ...]:
        """The ranks that have no actor: not made yet, or forgotten by Ray."""
        return tuple(sorted(set(range(self.world_size)) - {member.rank for member in self.members}))

    @property
    def lost(self) -> tuple[int, ...]:
        """The absent ranks that had an actor: verl makes them in order, and a later one is there."""
        last = max((member.rank for member in self.members), default=0)
        return tuple(rank for rank in self.absent if rank < last)

    @property
    def over(self) -> bool:
        """Whether nothing of it is there any more."""
        return all(member.state == "dead" for member in self.members)

    @property
    def name(self) -> str:
        """What to call it: its prefix and its class."""
        return f"{self.prefix}{self.class_name}"


def worker_groups(cluster: RayCluster) -> tuple[WorkerGroup, ...]:
    """All groups of the cluster, also those of jobs that have ended, as far as Ray remembers them; the latest first."""
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
    """What has become of an actor, where these jobs have ended."""
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
    """The jobs that are known to have ended."""
    return frozenset(job.job for job in cluster.jobs if job.finished)


def short_class(actor: RayActor) -> str:
    """The name of its class, without the function or class that it stands in."""
    return actor.class_name.rpartition(".")[2]


def is_member(actor: RayActor) -> bool:
    """Whether it is, or was, a rank of a worker group."""
    return _place(actor) is not None


def _place(actor: RayActor) -> tuple[str, int, int] | None:
    """Prefix, number of the placement group, number within it; None for what is no member of a worker group."""
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
    """What comes last is what counts: the one that is there, or else the one that ended last."""
    return actor.state != "DEAD", actor.ended


def _fused_roles(cls: str) -> Iterator[str]:
    """The roles in the name of a fused worker: "FusedWorker_actor_rollout_critic" has two."""
    if cls.startswith(_FUSED):
        yield from (match[1] for match in _ROLES.finditer(cls.removeprefix(_FUSED)))


def others(cluster: RayCluster) -> tuple[RayActor, ...]:
    """The actors that are members of no worker group and have not ended."""
    return tuple(actor for actor in cluster.actors if actor.state != "DEAD" and not is_member(actor))


def makers(cluster: RayCluster) -> Mapping[str, RayActor | RayJob]:
    """Who may have made an actor, and keeps it unless it is detached: actors and drivers that are there, by Ray's number of the process.

    An `owner` that is not among them may be a task, with which Ray ends what it made. Who else holds a handle the GCS does not know.
    """
    found: dict[str, RayActor | RayJob] = {
        maker.worker: maker for maker in cluster.jobs if not maker.finished
    }
    found.update((maker.worker, maker) for maker in cluster.actors if maker.state != "DEAD")
    return {worker: maker for worker, maker in found.items() if worker}
