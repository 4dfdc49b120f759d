"""The placement of actors as a JSON document, and the phrases that its views share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayJob
from verl_doctor.toolkit.collectors.ray.worker_groups import (
    Member,
    State,
    WorkerGroup,
    short_class,
    state_of,
)
from verl_doctor.toolkit.commands.actors.placement import ClusterView, Occupant, Placement, Seat
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.text import counted, ranges

UNKNOWN = "UNKNOWN"
"""The headline if Ray or the GPUs could not be read."""
HANDLES = (
    "the GCS does not record who holds a handle of an actor, only who created it; Ray ends an actor once "
    "nothing refers to it, unless it is detached"
)
_ORDER: tuple[State, ...] = ("alive", "starting", "waiting", "restarting", "left behind", "dead")


class ProcessDocument(TypedDict):
    """A process that holds a GPU."""

    pid: int
    memory: Annotated[int | None, "MiB; null if NVML does not report it"]
    title: Annotated[str | None, "null if the process is not visible from here"]
    role: Annotated[str, "its role in a job"]
    actor: Annotated[str | None, "the actor that it runs, or that started it"]
    is_the_actor: bool
    job: str | None
    job_ended: bool | None


class DeviceDocument(TypedDict):
    """A GPU."""

    index: int
    name: str
    used: Annotated[int | None, "MiB"]
    total: Annotated[int | None, "MiB"]
    processes: list[ProcessDocument]


class GpusDocument(TypedDict):
    """The NVIDIA GPUs of this machine."""

    why_not: Annotated[str | None, "why they are unknown"]
    devices: list[DeviceDocument]


class NodeDocument(TypedDict):
    """A node of a Ray cluster."""

    node: str
    address: str
    host: str
    alive: bool
    gpus: float


class JobDocument(TypedDict):
    """A job of a Ray cluster."""

    job: str
    finished: bool
    namespace: str
    address: str
    pid: int
    started: Annotated[float, "seconds since the epoch"]


class ActorDocument(TypedDict):
    """An actor."""

    actor: Annotated[str, "its ID in Ray"]
    name: Annotated[str, "empty if it has none"]
    class_name: Annotated[str, "without the function that defines it"]
    namespace: str
    state: Annotated[
        State,
        (
            "starting: in its constructor; waiting: for resources; left behind: it still runs, but its job "
            "has ended"
        ),
    ]
    died: Annotated[str | None, "the reason that Ray reports"]
    detached: bool
    job: str
    node: str | None
    address: str | None
    pid: int | None
    gpus: Annotated[list[int], "Ray's numbers for the GPUs of the node"]
    made_by: Annotated[
        str | None,
        "what created it and, unless it is detached, keeps it alive; null if that is a task or is gone",
    ]


class RankDocument(ActorDocument):
    """An actor of a worker group."""

    rank: int


class GroupDocument(TypedDict):
    """A worker group of verl."""

    name: str
    prefix: str
    class_name: str
    roles: Annotated[list[str], "the roles that share each process; empty if unknown"]
    namespace: str
    job: str
    job_ended: bool
    world_size: Annotated[int | None, "the value that its ranks were given"]
    ranks: list[RankDocument]
    absent: Annotated[list[int], "ranks without an actor"]


class WaitingDocument(TypedDict):
    """A placement group that is not placed yet."""

    group: str
    name: str
    job: str
    bundles: list[dict[str, float]]
    waits_for: str


class ClusterDocument(TypedDict):
    """A Ray cluster."""

    address: Annotated[str, "of its GCS"]
    session: str
    why_not: Annotated[str | None, "why it could not be read"]
    unread: Annotated[list[str], "tables that could not be read"]
    nodes: list[NodeDocument]
    jobs: list[JobDocument]
    groups: list[GroupDocument]
    others: Annotated[list[ActorDocument], "actors outside any worker group that have not ended"]
    waiting: list[WaitingDocument]


class RayDocument(TypedDict):
    """The Ray clusters that this machine belongs to."""

    why_not: Annotated[str | None, "why none is known"]
    clusters: list[ClusterDocument]


class ActorsDocument(TypedDict):
    """Which actors run on which GPU."""

    schema_version: Literal[1]
    gpus: GpusDocument
    ray: RayDocument


def document(found: Placement) -> ActorsDocument:
    """Return everything in JSON types. Memory is in MiB, times are in seconds since the epoch."""
    return {
        "schema_version": 1,
        "gpus": {
            "why_not": found.no_gpus.reason if found.no_gpus else None,
            "devices": [
                {
                    "index": device.index,
                    "name": device.name,
                    "used": device.memory.used if device.memory else None,
                    "total": device.memory.total if device.memory else None,
                    "processes": list(map(_process, occupants)),
                }
                for device, occupants in found.occupants
            ],
        },
        "ray": {
            "why_not": found.no_ray.reason if found.no_ray else None,
            "clusters": list(map(_cluster, found.clusters)),
        },
    }


def _process(occupant: Occupant) -> ProcessDocument:
    holder, seat = occupant.holder, occupant.seat
    return {
        "pid": holder.pid,
        "memory": holder.memory,
        "title": holder.title or None,
        "role": role(occupant),
        "actor": seat.actor.actor if seat else None,
        "is_the_actor": occupant.own,
        "job": seat.actor.job if seat else None,
        "job_ended": seat.job_ended if seat else None,
    }


def _cluster(view: ClusterView) -> ClusterDocument:
    cluster = view.cluster
    return {
        "address": cluster.address,
        "session": cluster.session,
        "why_not": cluster.refused or None,
        "unread": list(cluster.unread),
        "nodes": [
            {
                "node": node.node,
                "address": node.address,
                "host": node.host,
                "alive": node.alive,
                "gpus": node.resources.get("GPU", 0),
            }
            for node in cluster.nodes
        ],
        "jobs": [
            {
                "job": job.job,
                "finished": job.finished,
                "namespace": job.namespace,
                "address": job.address,
                "pid": job.pid,
                "started": job.started,
            }
            for job in cluster.jobs
        ],
        "groups": [
            {
                "name": group.name,
                "prefix": group.prefix,
                "class_name": group.class_name,
                "roles": list(group.roles),
                "namespace": group.namespace,
                "job": group.job,
                "job_ended": group.job in view.ended,
                "world_size": group.world_size or None,
                "ranks": [{"rank": member.rank, **_actor(member.actor, view)} for member in group.members],
                "absent": list(group.absent),
            }
            for group in view.groups
        ],
        "others": [_actor(other, view) for other in view.others],
        "waiting": [
            {
                "group": group.group,
                "name": group.name,
                "job": group.job,
                "bundles": [dict(bundle) for bundle in group.bundles],
                "waits_for": group.waits_for,
            }
            for group in waiting(view)
        ],
    }


def _actor(actor: RayActor, view: ClusterView) -> ActorDocument:
    return {
        "actor": actor.actor,
        "name": actor.name,
        "class_name": short_class(actor),
        "namespace": actor.namespace,
        "state": state_of(actor, view.ended),
        "died": actor.died or None,
        "detached": actor.detached,
        "job": actor.job,
        "node": actor.node or None,
        "address": actor.address or None,
        "pid": actor.pid or None,
        "gpus": list(actor.gpus),
        "made_by": made_by(actor, view) or None,
    }


def headline(found: Placement) -> tuple[str, str]:
    """Return the verdict as a word and a sentence."""
    if why := undetermined(found):
        return UNKNOWN, why
    if not found.clusters and not found.occupants:
        reasons = (found.no_gpus, found.no_ray)
        word = "NO ACTORS" if all(isinstance(reason, Absent) for reason in reasons) else UNKNOWN
        return word, "; ".join(reason.reason for reason in reasons if reason)
    states = Counter(member.state for group in shown(found) for member in group.members)
    lost = sum(len(group.lost) for group in shown(found))
    groups_text = counted(len(list(shown(found))), "worker group")
    if states["dead"] or lost:
        return "BROKEN", f"{counted(states['dead'] + lost, 'rank')} of {groups_text} dead"
    if states["left behind"]:
        return "LEFT BEHIND", f"{counted(states['left behind'], 'rank')} of finished jobs"
    if late := states["waiting"] + states["starting"] + states["restarting"]:
        return "WAITING", f"{counted(late, 'rank')} of {groups_text} not started yet"
    if unplaced := sum(len(list(waiting(view))) for view in found.clusters):
        return "WAITING", f"{counted(unplaced, 'placement group')} not placed yet"
    if states["alive"]:
        return "WHOLE", f"all {counted(states['alive'], 'rank')} of {groups_text} alive"
    holders = sum(len(occupants) for _, occupants in found.occupants)
    return (
        "NO GROUPS",
        f"no worker group of verl; {counted(holders, 'process', 'processes')} on the GPUs here",
    )


def undetermined(found: Placement) -> str:
    """Return why no cluster could be read although one may exist; "" if one was read, or none exists."""
    if found.no_ray is not None:
        return "" if isinstance(found.no_ray, Absent) else found.no_ray.reason
    if all(view.cluster.refused for view in found.clusters):
        reasons = (
            f"the Ray at {cluster.cluster.address} could not be read: {cluster.cluster.refused}"
            for cluster in found.clusters
        )
        return "; ".join(reasons)
    return ""


def shown(found: Placement) -> Iterator[WorkerGroup]:
    """Yield the groups with actors, and those of running jobs."""
    for view in found.clusters:
        for group in view.groups:
            if not group.over or group.job not in view.ended:
                yield group


def summary(group: WorkerGroup) -> str:
    """Return the states of a group's ranks: "16 ranks: 15 alive, 1 dead"."""
    states = Counter(member.state for member in group.members)
    parts = [f"{states[state]} {state}" for state in _ORDER if states[state]]
    if absent := len(group.absent) - len(group.lost):
        parts.append(f"{absent} not created yet")
    if group.lost:
        parts.append(f"{len(group.lost)} lost")
    return f"{counted(group.world_size or len(group.members), 'rank')}: {', '.join(parts)}"


def roles(group: WorkerGroup) -> str:
    """Return the roles that share each process, or the class if they are unknown."""
    return " + ".join(group.roles) or group.class_name


def role(occupant: Occupant) -> str:
    """Return the role of a process on a GPU in a job."""
    holder, seat = occupant.holder, occupant.seat
    if not holder.seen:
        return "not visible from here"
    if seat is None:
        return holder.title
    return who(seat) if occupant.own else f"{holder.title} of {who(seat)}"


def who(seat: Seat) -> str:
    """Describe an actor.

    Examples are "rank 0 of abc123WorkerDict (actor + critic)" and "vllm_server_0_0 (vLLMHttpServer)".
    """
    if seat.group is not None and seat.member is not None:
        return f"rank {seat.member.rank} of {seat.group.name} ({roles(seat.group)})"
    return name(seat.actor)


def name(actor: RayActor) -> str:
    """Return an actor by its name and class."""
    return (
        f"{actor.name} ({short_class(actor)})" if actor.name else f"{short_class(actor)} {actor.actor[:12]}"
    )


def made_by(actor: RayActor, view: ClusterView) -> str:
    """Return what created an actor and keeps it alive unless it is detached; "" if unknown."""
    found = view.makers.get(actor.owner)
    if isinstance(found, RayJob):
        return f"the driver of job {found.job}"
    return name(found) if found else ""


def kept_by(group: WorkerGroup, view: ClusterView) -> str:
    """Return what keeps a group's actors alive, according to the GCS."""
    alive = [member.actor for member in group.of("alive", "left behind")]
    if not alive:
        return ""
    creator = made_by(alive[0], view)
    if all(actor.detached for actor in alive):
        qualifier = "" if group.job in view.ended else ", according to the GCS"
        return f"detached: only their names refer to them{qualifier}"
    return f"created by {creator}" if creator else "created by a task of the job"


def troubled(group: WorkerGroup) -> Iterator[tuple[str, str]]:
    """Yield the ranks that are not alive, grouped by reason: their numbers, and the reason."""
    ranks_by_state: dict[str, list[int]] = {}
    for member in group.members:
        if member.state != "alive":
            ranks_by_state.setdefault(_story(member), []).append(member.rank)
    for story, numbers in ranks_by_state.items():
        yield _ranks(numbers), story
    if group.lost:
        yield _ranks(group.lost), "forgotten by Ray"


def _story(member: Member) -> str:
    if member.state == "dead":
        why = (
            member.actor.died.partition(" Some common causes")[0] or member.actor.end or "Ray gives no reason"
        )
        return f"dead: {why}"
    return {
        "starting": "in the constructor",
        "waiting": "waiting for resources",
        "restarting": "restarting",
        "left behind": "left behind: the job has ended",
    }[member.state]


def _ranks(numbers: Iterable[int]) -> str:
    every = list(numbers)
    return f"{'rank' if len(every) == 1 else 'ranks'} {ranges(every)}"


def on_nodes(group: WorkerGroup) -> Iterator[str]:
    """Yield where the living ranks are: "10.0.0.5: ranks 0-7 on GPUs 0-7"."""
    places: dict[str, list[Member]] = {}
    for member in group.of("alive", "starting", "left behind"):
        places.setdefault(member.actor.address, []).append(member)
    for address, members in places.items():
        gpus = [gpu for member in members for gpu in member.actor.gpus]
        on = f" on {'GPU' if len(set(gpus)) == 1 else 'GPUs'} {ranges(gpus)}" if gpus else ""
        yield f"{address}: {_ranks(member.rank for member in members)}{on}"


def other_actors(view: ClusterView, job: str) -> str:
    """Return a job's actors outside any group, by class and state.

    An example is "2 vLLMHttpServer, 1 TaskRunner (left behind)".
    """
    kinds = Counter(
        (short_class(other), state_of(other, view.ended)) for other in view.others if other.job == job
    )
    return ", ".join(
        f"{number} {kind}{'' if state == 'alive' else f' ({state})'}"
        for (kind, state), number in sorted(kinds.items())
    )


def waiting(view: ClusterView) -> Iterator[RayGroup]:
    """Return the placement groups of running jobs that are not placed yet."""
    return (
        group for group in view.cluster.groups if group.state == "PENDING" and group.job not in view.ended
    )


def bundles(group: RayGroup) -> str:
    """Return what a placement group requests: "8 times 1 GPU, 3 CPU"."""
    kinds = Counter(
        ", ".join(f"{amount:g} {kind}" for kind, amount in sorted(bundle.items(), reverse=True))
        for bundle in group.bundles
    )
    return " and ".join(f"{number} times {what}" for what, number in kinds.items())


def jobs(view: ClusterView) -> Iterator[RayJob]:
    """Yield the running jobs, and those with actors that have ended or that the GCS does not list."""
    cluster = view.cluster
    used = {actor.job for actor in cluster.actors if actor.state != "DEAD"}
    yield from (job for job in cluster.jobs if not job.finished or job.job in used)
    yield from (RayJob(job) for job in sorted(used - {job.job for job in cluster.jobs}))
