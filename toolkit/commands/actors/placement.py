"""The processes on each GPU of this machine, joined with the actors of the Ray clusters known here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob
from verl_doctor.toolkit.collectors.ray.worker_groups import (
    Member,
    WorkerGroup,
    ended_jobs,
    makers,
    others,
    worker_groups,
)
from verl_doctor.toolkit.facts import Unknown

_DEEPEST = 16  # ancestors to look through: server, engine and its workers are three


@dataclass(frozen=True)
class ClusterView:
    """A cluster and what is derived once: worker groups, other actors, finished jobs, creators of actors."""

    cluster: RayCluster
    groups: tuple[WorkerGroup, ...]
    others: tuple[RayActor, ...]
    ended: frozenset[str]
    makers: Mapping[str, RayActor | RayJob]


@dataclass(frozen=True)
class Seat:
    """An actor that has a process, whether its job has ended, and the worker group that it is a rank of."""

    actor: RayActor
    job_ended: bool
    group: WorkerGroup | None = None
    member: Member | None = None


@dataclass(frozen=True)
class Occupant:
    """A process that holds memory of a GPU.

    `seat` is the actor that it runs (`own`), or below which it was started.
    """

    holder: Holder
    seat: Seat | None = None
    own: bool = False


@dataclass(frozen=True)
class Placement:
    """What is known of the GPUs here and of the clusters, and the reason if either is unknown."""

    occupants: tuple[tuple[Device, tuple[Occupant, ...]], ...] = ()
    clusters: tuple[ClusterView, ...] = ()
    no_gpus: Unknown | None = None
    no_ray: Unknown | None = None


def placement(
    clusters: RayClusters | Unknown,
    gpus: Gpus | Unknown,
    processes: Processes | Unknown,
    raylets: Raylets | Unknown,
    *,
    requested: RayClusters | Unknown | None = None,
) -> Placement:
    """Join the data of NVML, the process table and the GCS.

    Only `requested` clusters are shown; the others also identify processes.
    """
    known = () if isinstance(clusters, Unknown) else tuple(map(_view, clusters.clusters))
    shown = clusters if requested is None else requested
    wanted = () if isinstance(shown, Unknown) else shown.clusters
    seats = _seats_here(known, raylets)
    parents = (
        {}
        if isinstance(processes, Unknown)
        else {process.pid: process.parent for process in processes.running}
    )
    devices = () if isinstance(gpus, Unknown) else gpus.devices
    return Placement(
        tuple(
            (device, tuple(_occupant(holder, parents, seats) for holder in device.holders))
            for device in devices
        ),
        tuple(cluster_view for cluster_view in known if cluster_view.cluster in wanted),
        gpus if isinstance(gpus, Unknown) else Unknown(gpus.refused) if gpus.refused else None,
        shown if isinstance(shown, Unknown) else None,
    )


def _view(cluster: RayCluster) -> ClusterView:
    return ClusterView(cluster, worker_groups(cluster), others(cluster), ended_jobs(cluster), makers(cluster))


def _seats_here(views: tuple[ClusterView, ...], raylets: Raylets | Unknown) -> Mapping[int, Seat]:
    """Return the actors on this machine by process ID; other nodes may have the same IDs."""
    running = () if isinstance(raylets, Unknown) else raylets.running
    here = {(raylet.session, raylet.address) for raylet in running}
    return {
        seat.actor.pid: seat
        for view in views
        for seat in _seats(view)
        if (view.cluster.session, seat.actor.address) in here
    }


def _seats(view: ClusterView) -> Iterator[Seat]:
    for group in view.groups:
        for member in group.of("alive", "starting", "left behind"):
            yield Seat(member.actor, member.actor.job in view.ended, group, member)
    for actor in view.others:
        if actor.pid:
            yield Seat(actor, actor.job in view.ended)


def _occupant(holder: Holder, parents: Mapping[int, int], seats: Mapping[int, Seat]) -> Occupant:
    """Return what a process is: an actor, or started below one.

    An ID that is not visible here may be another machine's.
    """
    if not holder.seen:
        return Occupant(holder)
    pid = holder.pid
    for depth in range(_DEEPEST):
        if pid in seats:
            return Occupant(holder, seats[pid], own=depth == 0)
        pid = holder.parent if depth == 0 else parents.get(pid, 0)
        if pid <= 1:
            break
    return Occupant(holder)
