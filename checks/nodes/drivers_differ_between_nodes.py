"""CUDA160: nodes with the same GPUs have different NVIDIA drivers."""

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
            "four nodes were not updated",
            (fleet_of(64, ("driver", "driver", {"580.95.05": 60, "550.54.14": (4, "node[1-4]")})),),
            "node[1-4] have driver 550.54.14, the other 60 have driver 580.95.05",
        ),
    ]


@check("CUDA160", severity="warning", cost="cluster", examples=_examples)
def drivers_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Nodes with the same GPUs have different NVIDIA drivers.

    ## Why it matters

    Binaries for a newer CUDA and some features of NCCL fail only on the nodes with the older driver. Whether
    a job fails then depends on where the scheduler places it.

    ## How to fix

    Install the same driver on all nodes, or keep those nodes out of the job: `srun --exclude` accepts the
    list as the finding prints it.
    """
    yield from differences(fleet.about("driver"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{subject.name} {value}"


_WORDS = Words(
    phrase=_phrase,
    singular="driver",
    several="drivers",
    read_from="NVML on each node",
    remedy="install the other nodes' driver on these hosts",
)
