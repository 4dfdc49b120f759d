"""What the Ray clusters known here contain, read from their control store (GCS) without joining them.

A child of the target's interpreter reads it with the target's own Ray, and registers no job. It needs no
dashboard. The token of a cluster that requires one is passed as the name of its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.ray.addresses import UNDETERMINED, Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayJob, RayNode
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import ray_state
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.system.child import ending, run_probe
from verl_doctor.toolkit.system.secret import may_hold_secret

_MOST = 4  # clusters; each costs a process that imports Ray
_READING, _LIMIT = (
    4.0,
    20.0,
)  # seconds: for the replies, and in total; importing Ray from a network disk takes long
_TABLES = ("nodes", "jobs", "actors", "groups")
_NOT_LET_IN = ("AuthenticationError", "InvalidAuthToken", "Unauthenticated")
_WITHHELD = "(withheld: it may hold a secret)"


@dataclass(frozen=True)
class RayCluster:
    """One cluster. `address` is its GCS's, `also` are other spellings of it; `session` is its own name.

    `ray` and `python` are the versions that started it, "" if unknown. `by_driver`: a driver's `ray.init`
    started it, and it ends with that driver. `token`: it requires a token. `refused` is why nothing could be
    read of it; `silent`: it did not reply. `unread` are the tables ("nodes", "jobs", "actors", "groups") that
    could not be read, and `undetermined` gives the reason for each.
    """

    address: str
    also: tuple[str, ...] = ()
    ray: str = ""
    python: str = ""
    session: str = ""
    cluster: str = ""
    by_driver: bool = False
    token: bool = False
    nodes: tuple[RayNode, ...] = ()
    jobs: tuple[RayJob, ...] = ()
    actors: tuple[RayActor, ...] = ()
    groups: tuple[RayGroup, ...] = ()
    refused: str = ""
    silent: bool = False
    unread: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()

    @property
    def alive(self) -> tuple[RayNode, ...]:
        """Return the nodes that are alive."""
        return tuple(node for node in self.nodes if node.alive)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that have a driver or an actor."""
        jobs = (job.namespace for job in self.jobs if not job.finished)
        actors = (actor.namespace for actor in self.actors if actor.state != "DEAD")
        return tuple(sorted({*jobs, *actors} - {""}))

    def job(self, identity: str) -> RayJob | None:
        """Return the job with this number."""
        return next((job for job in self.jobs if job.job == identity), None)

    def has_read(self, part: str) -> bool:
        """Return whether a table ("nodes", "jobs", "actors", "groups") was read.

        If not, its being empty means nothing.
        """
        return not self.refused and part not in self.unread


Choice = Literal["named", "found", "new"]
"""How a job gets its Ray: an address names it, it joins a Ray that it finds, or it starts its own."""


@dataclass(frozen=True)
class RayClusters:
    """Clusters that respond at known addresses; `joined` is the address that a job from here would join."""

    clusters: tuple[RayCluster, ...] = ()
    joined: str = ""
    choice: Choice = "found"

    def at(self, address: str) -> RayCluster | None:
        """Return the cluster with this address."""
        return next(
            (cluster for cluster in self.clusters if address and address in (cluster.address, *cluster.also)),
            None,
        )

    @property
    def chosen(self) -> RayCluster | None:
        """Return the cluster that a job started from here would join."""
        return self.at(self.joined)

    @property
    def concerned(self) -> tuple[RayCluster, ...]:
        """Return the clusters in which a hanging job concerns this target.

        There are none if it starts its own Ray; all count if chance decides.
        """
        if self.choice == "found":
            return self.clusters
        return tuple(
            cluster for cluster in self.clusters if self.choice == "named" and cluster is self.chosen
        )


@collector(timeout=2 * _LIMIT + 2)
def ray_clusters(
    addresses: RayAddresses, token: RayToken, interpreter: Interpreter, machine: Machine
) -> RayClusters | Unknown:
    """Query the responding GCSes in parallel: the job's, then other named ones, then this user's raylets'."""
    taken = addresses.taken
    foreign = {ray.address for ray in addresses.running if not ray.mine}
    places = [
        *([taken] if taken else []),
        *(place for place in addresses.places if place.source != "raylet"),
        *(place for place in addresses.places if place.source == "raylet" and place.address not in foreign),
    ]
    answering = dict.fromkeys(
        place.address for place in places if place.reply == "connected" and "://" not in place.text
    )
    if not answering:
        return Absent("no Ray responds at any address known here")
    queried = list(answering)[:_MOST]
    with TURNS.waiting(), ThreadPoolExecutor(len(queried)) as pool:
        found = pool.map(
            lambda address: read_cluster(machine, interpreter.executable, address, token), queried
        )
        clusters = tuple(_once(found))
    # A cluster that answers where the script starts a head is not the one that the job will join.
    joined = taken.address if taken is not None and taken.source != "ray start --head" else ""
    return RayClusters(clusters, joined, _choice(taken))


def _choice(taken: Place | None) -> Choice:
    if taken is not None and (taken.source == "ray start --head" or taken.text == "local"):
        return "new"
    by_chance = taken is None or taken.source in ("address file", "raylet") or taken.text == UNDETERMINED
    return "found" if by_chance else "named"


def _once(found: Iterable[RayCluster]) -> Iterator[RayCluster]:
    """Yield one entry for all spellings of a cluster's address."""
    different: dict[str, RayCluster] = {}
    for cluster in found:
        key = cluster.cluster or cluster.address
        first = different.get(key)
        different[key] = cluster if first is None else replace(first, also=(*first.also, cluster.address))
    return iter(different.values())


def read_cluster(machine: Machine, python: str, address: str, token: RayToken) -> RayCluster:
    """Query without a token first, and with one only if the cluster requires it.

    This shows whether it does.
    """
    reported = _query(machine, python, address, {"RAY_AUTH_MODE": "disabled"})
    requires_token = any(word in str(reported.get("refused", "")) for word in _NOT_LET_IN)
    if requires_token and token.is_set:
        path = {"RAY_AUTH_TOKEN_PATH": token.path} if token.path else {}
        reported = _query(machine, python, address, {"RAY_AUTH_MODE": "token", **path})
    return replace(_restored(address, reported), token=requires_token)


def _query(machine: Machine, python: str, address: str, variables: Mapping[str, str]) -> dict[str, Any]:
    question = json.dumps({"address": address, "limit": _READING})
    result = run_probe(machine, python, ray_state, question, timeout=_LIMIT, variables=variables)
    if isinstance(result, Unknown):
        return {"refused": result.reason}
    answer, reported = result
    return reported if isinstance(reported, dict) else {"refused": ending(answer, _LIMIT)}


def _restored(address: str, reported: Mapping[str, Any]) -> RayCluster:
    metadata = reported.get("metadata") or {}
    undetermined = tuple(map(str, reported.get("undetermined", ())))
    refused = str(reported.get("refused", ""))
    if not refused and not reported.get("cluster"):
        refused = "; ".join(undetermined) or "its GCS did not respond"
    return RayCluster(
        address,
        ray=str(metadata.get("ray_version", "")),
        python=str(metadata.get("python_version", "")),
        session=str(reported.get("session") or ""),
        cluster=str(reported.get("cluster") or ""),
        by_driver=bool(metadata.get("ray_init_cluster")),
        nodes=_table(RayNode, reported.get("nodes")),
        jobs=tuple(map(_without_secret, _table(RayJob, reported.get("jobs")))),
        actors=_table(RayActor, reported.get("actors")),
        groups=_table(RayGroup, reported.get("groups")),
        refused=refused,
        silent=bool(refused and reported.get("asked")),
        unread=tuple(name for name in _TABLES if reported.get(name) is None),
        undetermined=undetermined,
    )


def _table(kind: type[Any], entries: list[dict[str, Any]] | None) -> tuple[Any, ...]:
    """Convert the entries to facts, sorted by identity, as a GCS uses any order.

    The child names the fields; lists become tuples.
    """
    names = [field.name for field in fields(kind)]
    return tuple(
        kind(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in entry.items()
                if key in names
            }
        )
        for entry in sorted(entries or (), key=lambda entry: str(entry[names[0]]))
    )


def _without_secret(job: RayJob) -> RayJob:
    """Mask a job's command line, which may hold a password."""
    return replace(job, entrypoint=_WITHHELD) if may_hold_secret(job.entrypoint) else job
