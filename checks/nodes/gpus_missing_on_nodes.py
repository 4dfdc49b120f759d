"""CUDA161: some nodes have fewer GPUs than the others of their kind."""

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
            "a GPU fell off the bus",
            (fleet_of(64, ("GPUs", "GPUs", {"8": 63, "7": (1, "node9")})),),
            "node9 has 7 GPUs, the other 63 have 8 GPUs",
        ),
    ]


@check("CUDA161", phase="ray", severity="error", cost="cluster", examples=_examples)
def gpus_missing_on_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Some nodes have fewer GPUs than the others of their kind.

    ## Why it matters

    A job that requests all GPUs of each node (`trainer.n_gpus_per_node`) waits forever for the missing one,
    or its placement group is never created. A GPU that disappeared has most often fallen off the bus (Xid
    79).

    ## How to fix

    Check `nvidia-smi` and the kernel's log on these nodes, and restart or drain them.
    """
    yield from differences(fleet.about("GPUs"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{value} {'GPU' if value == '1' else subject.name}"


_WORDS = Words(
    phrase=_phrase,
    singular="number",
    several="numbers",
    read_from="NVML on each node",
    remedy="run nvidia-smi -L and dmesg | grep -i xid on these nodes",
)
