"""Detached actors and placement groups that finished jobs left in a Ray cluster, holding CPUs and GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.leftover import Kept, KillActor, Kind, Leftover, Leftovers, RemoveGroup

_LONGEST = 80


@dataclass(frozen=True)
class LeftActors(Leftovers):
    """Leftovers of finished jobs in the known Ray clusters, and what resembles them and is kept."""


@collector()
def left_actors(
    clusters: RayClusters, addresses: RayAddresses, interpreter: Interpreter, token: RayToken
) -> LeftActors:
    """Judge what the GCS of each cluster reports. Sends no requests."""
    from verl_doctor.toolkit.collectors.ray.left_in_ray import left_in  # noqa: PLC0415

    found, kept = [], []
    for cluster in clusters.clusters:
        removal = Removals(cluster, interpreter.executable, token.path if cluster.token else "")
        for left in left_in(cluster, time.time(), mine=_is_mine(cluster, addresses)):
            kind: Kind = "actor" if isinstance(left.subject, RayActor) else "placement group"
            if left.kept:
                kept.append(Kept(kind, name(left.subject), left.kept, store="resources"))
            else:
                found.append(
                    Leftover(
                        kind,
                        name(left.subject),
                        left.proof,
                        removal.of(left.subject),
                        store="resources",
                        age=left.age,
                    )
                )
    return LeftActors(tuple(found), tuple(kept))


@dataclass(frozen=True)
class Removals:
    """How to remove something from a cluster: the interpreter and the token file."""

    cluster: RayCluster
    python: str
    token: str

    def of(self, subject: RayActor | RayGroup) -> KillActor | RemoveGroup:
        """Return the removal of one actor or group."""
        address, session = self.cluster.address, self.cluster.session
        if isinstance(subject, RayActor):
            return KillActor(address, session, subject.actor, self.python, self.token)
        return RemoveGroup(address, session, subject.group, self.python, self.token)


def name(subject: RayActor | RayGroup) -> str:
    """Return a display name: its name, its class, and what it holds."""
    if isinstance(subject, RayActor):
        what = f"{subject.name or subject.actor} ({subject.class_name})"
        holds = _amounts(subject.needs)
    else:
        what = subject.name or subject.group
        holds = " + ".join(filter(None, map(_amounts, subject.bundles)))
    return f"{what[:_LONGEST]}{f', holds {holds[:_LONGEST]}' if holds else ''}"


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {kind}" for kind, amount in resources.items() if "_group_" not in kind)


def _is_mine(cluster: RayCluster, addresses: RayAddresses) -> bool:
    known = (cluster.address, *cluster.also)
    here = [
        local_ray
        for local_ray in addresses.running
        if local_ray.address in known or local_ray.session == cluster.session
    ]
    return bool(here) and all(local_ray.mine for local_ray in here)
