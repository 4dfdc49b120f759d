"""What a Ray of the run's own has not been able to start, and what it lacks for that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_doctor.toolkit.fact_ray_clusters import RayCluster, read_cluster
from verl_doctor.toolkit.fact_ray_token import RayToken
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process_table import command_of, numbers

_GCS = re.compile(r"--gcs-address=([\w.:\[\]-]+)")
_WAITING = ("PENDING_CREATION", "DEPENDENCIES_UNREADY")


def waits_in(machine: Machine, python: str, folder: Path) -> str:
    """Ask the cluster whose session lies below `folder`. "" when nothing waits, or nobody answers."""
    address = _address_in(machine, folder)
    return waiting(read_cluster(machine, python, address, RayToken())) if address else ""


def _address_in(machine: Machine, folder: Path) -> str:
    """Of its control store, as its raylet is told: a Ray that a driver starts may write it into no file."""
    listed = numbers(machine)
    for pid in () if isinstance(listed, Unknown) else listed:
        command = command_of(pid, machine)
        if command and f"{folder}/" in command and (found := _GCS.search(command)):
            return found[1]
    return ""


def waiting(cluster: RayCluster) -> str:
    """In words which actors or placement groups have no place, what they ask for, and what Ray has; "" when none waits."""
    actors = Counter(
        (actor.class_name or actor.name, _said(actor.needs))
        for actor in cluster.actors
        if actor.state in _WAITING and actor.needs
    )
    said = [f"{count} x {name} ({needs})" for (name, needs), count in sorted(actors.items())]
    said += [
        f"a placement group of {_parts(group.bundles)}"
        for group in cluster.groups
        if group.state == "PENDING"
    ]
    if not said:
        return ""
    return f"Ray cannot start {', '.join(said)}: it has {_said(_sum(cluster, 'resources'))}, free are {_said(_sum(cluster, 'free'))}"


def _parts(bundles: Sequence[Mapping[str, float]]) -> str:
    counts = Counter(map(_said, bundles))
    return " and ".join(said if count == 1 else f"{count} x {said}" for said, count in counts.items())


def _sum(cluster: RayCluster, part: str) -> Mapping[str, float]:
    total: Counter[str] = Counter()
    for node in cluster.alive:
        total.update(getattr(node, part))
    return total


def _said(resources: Mapping[str, float]) -> str:
    counts = [f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU") if name in resources]
    return " and ".join(counts) or "no CPU"
