"""Shared by the rules about the cluster that a job would join: phrases, and miniatures for examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl_doctor.checks.shared.configuration import GPUS, NODES, number_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE
from verl_doctor.toolkit.collectors.ray.addresses import UNDETERMINED, LocalRay, Place, RayAddresses, Source
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayNode
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Location

ADDRESS = "10.0.0.5:6379"
FILE = "/tmp/ray/ray_current_cluster"
SESSION = "session_2026-11-21_10-00-00_000000_77"


def ray_place(text: str = ADDRESS, source: Source = "RAY_ADDRESS", **others: Any) -> Place:
    """A place with the address of a Ray that responds."""
    host, _, port = text.rpartition("://")[2].partition(":")
    names = {
        "RAY_ADDRESS": "RAY_ADDRESS of this shell",
        "address file": FILE,
        "raylet": "a raylet (process 77)",
    }
    named = host not in ("auto", "local", UNDETERMINED)
    found = Place(
        source=source,
        given_by=names.get(source, source),
        text=text,
        host=host if named else "",
        port=int(port or 0),
        reply="connected",
    )
    return replace(found if found.address else replace(found, reply=""), **others)


def joins(cluster: RayCluster, *others: RayCluster) -> RayClusters:
    """A job that joins the first of these clusters."""
    return RayClusters(clusters=(cluster, *others), joined=cluster.address)


def a_node(name: str = "n1", **changes: Any) -> RayNode:
    """A node with 8 GPUs and 64 CPUs, all free."""
    has = {"CPU": 64.0, "GPU": 8.0}
    changes.setdefault("free", changes.get("resources", has))
    return RayNode(name, **{"address": "10.0.0.5", "host": name, "resources": has, **changes})


def a_cluster(*nodes: RayNode, **changes: Any) -> RayCluster:
    """A cluster of these nodes, or of a single default node."""
    whole = RayCluster(
        ADDRESS, ray="2.60.0", python="3.11.7", session=SESSION, cluster="ab12", nodes=nodes or (a_node(),)
    )
    return replace(whole, **changes)


def finding_its_place(place: Place) -> Location | None:
    """Where a launch file sets the address."""
    if not place.path:
        return None
    return Location(place.path, None if place.path == COMMAND_LINE else place.line or None)


def live(addresses: RayAddresses) -> str:
    """The address of a Ray that responds, for the remedy; "" if there is none."""
    return next(
        (place.address for place in addresses.places if place.reply == "connected" and place.address), ""
    )


def other_than(place: Place, addresses: RayAddresses) -> str:
    """The remedy for an address without a Ray: remove it, or use that of the Ray that runs here."""
    here = live(addresses)
    instead = f"; the Ray that answers here is {here}" if here else ""
    if place.source == "RAY_ADDRESS" and not place.path:
        return f"unset RAY_ADDRESS, or export the address that ray start --head printed{instead}"
    return f"correct {place.given_by}, or remove it{instead}"


def requested_of_ray(configuration: Configuration | Unknown) -> tuple[int, int]:
    """The nodes that the job requests, and the GPUs on each; zeros if unknown."""
    nodes, gpus = number_of(configuration, NODES), number_of(configuration, GPUS)
    return (nodes, gpus) if nodes and gpus else (0, 0)


def total(nodes: tuple[RayNode, ...], name: str) -> float:
    """How much of one resource these nodes have."""
    return sum(node.resources.get(name, 0) for node in nodes)


def free(nodes: tuple[RayNode, ...], name: str) -> float:
    """How much of one resource is free on these nodes."""
    return sum(node.free.get(name, 0) for node in nodes)


def resources_text(resources: Mapping[str, float]) -> str:
    """Resources in readable form: "1 GPU, 3 CPU"."""
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(resources.items(), reverse=True))


def short(identity: str) -> str:
    """The start of a long ID, enough to identify it."""
    return identity[:12]


MINE = LocalRay(address=ADDRESS, session=SESSION, raylets=(77,), gcs=70, user="me")
