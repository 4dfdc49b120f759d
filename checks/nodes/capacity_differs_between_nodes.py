"""HOST133: some nodes have fewer CPUs, or less memory, than the others of their kind."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.nodes._fleet import Words, differences
from verl_doctor.checks.nodes._fleet_examples import fleet_of
from verl_doctor.toolkit.collectors.ray.fleet import Fleet, Subject
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> list[Example]:
    return [
        Example("all alike", (fleet_of(1000),)),
        Example(
            "a memory module is missing",
            (fleet_of(64, ("capacity", "memory", {"2.0 TiB": 63, "1.8 TiB": (1, "node9")})),),
            "node9 has 1.8 TiB of memory, the other 63 have 2.0 TiB of memory",
        ),
    ]


@check("HOST133", severity="warning", cost="cluster", examples=_examples)
def capacity_differs_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Some nodes have fewer CPUs or less memory than the others of their kind.

    ## Why it matters

    Placement and sizes are chosen for the usual node. On a smaller node the same workers are killed because
    memory runs out, or NCCL and Ray's object store fail because /dev/shm is small.

    ## How to fix

    Check `lscpu`, `free -g`, `df -h /dev/shm` and the container limits there; drain a node that lost a memory
    module.
    """
    yield from differences(fleet.about("capacity"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return (
        f"{value} CPUs"
        if subject.name == "CPUs"
        else f"{value or 'no'} {'of ' if value else ''}{subject.name}"
    )


_WORDS = Words(
    phrase=_phrase,
    singular="capacity",
    several="capacities",
    read_from="/proc/meminfo, statvfs of /dev/shm, and affinity and control groups on each node",
    remedy="check the container limits and the hardware of these nodes",
)
