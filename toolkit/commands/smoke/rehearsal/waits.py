"""What the trainer waits for and will not get, according to the run's own Ray.

That is what could not be started, and which actors died.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, read_cluster
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.commands.smoke.child import End
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import command_of, numbers

_GCS = re.compile(r"--gcs-address=([\w.:\[\]-]+)")
_WAITING = ("PENDING_CREATION", "DEPENDENCIES_UNREADY")
_UNINTENDED_ENDS = ("WORKER_DIED", "NODE_DIED", "OUT_OF_MEMORY", "INIT_FAILED")  # the others are intended
_ON_PURPOSE = "INTENDED"  # WorkerExitType of src/ray/protobuf/common.proto: an actor that ended itself

FAILED = "a process of the job failed"


def waits_in(machine: Machine, python: str, folder: Path) -> End | None:
    """Query the cluster whose session is below `folder`.

    Return None if nothing is stuck, or the cluster does not respond.
    """
    address = _address_in(machine, folder)
    if not address:
        return None
    cluster = read_cluster(machine, python, address, RayToken())
    if sentence := waiting(cluster):
        return End("no room", sentence)
    return End("process failed", sentence) if (sentence := died(cluster)) else None


def _address_in(machine: Machine, folder: Path) -> str:
    """Return the address of its control store as passed to its raylet.

    A Ray started by a driver may not write it to a file.
    """
    listed = numbers(machine)
    for pid in () if isinstance(listed, Unknown) else listed:
        command = command_of(pid, machine)
        if command and f"{folder}/" in command and (found := _GCS.search(command)):
            return found[1]
    return ""


def waiting(cluster: RayCluster) -> str:
    """Describe actors or placement groups without a place, their requests, and what Ray has; "" for none."""
    actors = Counter(
        (actor.class_name or actor.name, _resources_text(actor.needs))
        for actor in cluster.actors
        if actor.state in _WAITING and actor.needs
    )
    waits = [f"{count} x {name} ({needs})" for (name, needs), count in sorted(actors.items())]
    waits += [
        f"a placement group of {_parts(group.bundles)}"
        for group in cluster.groups
        if group.state == "PENDING"
    ]
    if not waits:
        return ""
    return (
        f"Ray cannot start {', '.join(waits)}: it has {_resources_text(_sum(cluster, 'resources'))}, free "
        f"are {_resources_text(_sum(cluster, 'free'))}"
    )


def died(cluster: RayCluster) -> str:
    """Describe the actor that died unintentionally; "" if none did."""
    dead = [
        actor
        for actor in cluster.actors
        if actor.state == "DEAD" and actor.end in _UNINTENDED_ENDS and _ON_PURPOSE not in actor.died
    ]
    if not dead:
        return ""
    first = min(dead, key=lambda actor: actor.ended)
    return (
        f"{FAILED}: {first.class_name or first.name} (process {first.pid}) has died: "
        f"{' '.join(first.died.split()) or first.end}"
    )


def _parts(bundles: Sequence[Mapping[str, float]]) -> str:
    counts = Counter(map(_resources_text, bundles))
    return " and ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _sum(cluster: RayCluster, part: str) -> Mapping[str, float]:
    total: Counter[str] = Counter()
    for node in cluster.alive:
        total.update(getattr(node, part))
    return total


def _resources_text(resources: Mapping[str, float]) -> str:
    counts = [f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU") if name in resources]
    return " and ".join(counts) or "no CPU"
