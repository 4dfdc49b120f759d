"""What a Ray of the run's own has not been able to start, and what it lacks for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from verl_doctor.toolkit.fact_ray_clusters import RayCluster, read_cluster
from verl_doctor.toolkit.fact_ray_token import RayToken
from verl_doctor.toolkit.machine import Machine

_WAITING = ("PENDING_CREATION", "DEPENDENCIES_UNREADY")


def waits_in(machine: Machine, python: str, folder: Path) -> str:
    """Ask the cluster that was started with RAY_TMPDIR in `folder`. "" when nothing waits, or nobody answers."""
    try:
        address = (folder / "ray" / "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
    return waiting(read_cluster(machine, python, address, RayToken()))


def waiting(cluster: RayCluster) -> str:
    """In words which actors or placement groups have no place, what they ask for, and what Ray has; "" when none waits."""
    actors = Counter(
        (actor.class_name or actor.name, _said(actor.needs))
        for actor in cluster.actors
        if actor.state in _WAITING and actor.needs
    )
    said = [f"{count} x {name} ({needs})" for (name, needs), count in sorted(actors.items())]
    said += [
        f"placement group of {' and '.join(map(_said, group.bundles))}"
        for group in cluster.groups
        if group.state == "PENDING"
    ]
    if not said:
        return ""
    return f"Ray cannot start {', '.join(said)}: it has {_said(_sum(cluster, 'resources'))}, free are {_said(_sum(cluster, 'free'))}"


def _sum(cluster: RayCluster, part: str) -> Mapping[str, float]:
    total: Counter[str] = Counter()
    for node in cluster.alive:
        total.update(getattr(node, part))
    return total


def _said(resources: Mapping[str, float]) -> str:
    counts = [f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU") if name in resources]
    return " and ".join(counts) or "no CPU"
