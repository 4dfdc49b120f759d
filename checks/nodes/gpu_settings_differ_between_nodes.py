"""CUDA163: GPUs of the same kind are configured differently on some nodes."""

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
            "a power limit",
            (fleet_of(64, ("GPU setting", "power limit", {"700 W": 62, "500 W": (2, "node[8-9]")})),),
            "node[8-9] have power limit 500 W, the other 62 have power limit 700 W",
        ),
    ]


@check("CUDA163", severity="warning", cost="cluster", examples=_examples)
def gpu_settings_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """GPUs of the same kind are configured differently on some nodes.

    ## Why it matters

    All ranks wait for the slowest. A lower power limit or an NVLink that is down on one node slows down the
    whole job without any message. MIG on one node makes its GPUs different devices.

    ## How to fix

    Use `nvidia-smi -pl` (power limit), `nvidia-smi nvlink -s` (links) and `nvidia-smi -mig 0` (MIG) on these
    nodes.
    """
    yield from differences(fleet.about("GPU setting"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{subject.name} {value or 'unknown'}"


_WORDS = Words(
    phrase=_phrase,
    singular="setting",
    several="settings",
    read_from="NVML on each node",
    remedy="compare nvidia-smi -q on one of these nodes and on another",
)
