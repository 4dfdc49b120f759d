"""NET122: InfiniBand or RoCE ports of some nodes differ from the others of their kind."""

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
            "a link is down",
            (
                fleet_of(
                    64,
                    (
                        "adapter",
                        "mlx5_3:1",
                        {
                            "ACTIVE, InfiniBand, 400 Gb/sec (4X NDR)": 63,
                            "DOWN, InfiniBand, 10 Gb/sec (4X SDR)": (1, "node9"),
                        },
                    ),
                ),
            ),
            "node9 has mlx5_3:1 DOWN",
        ),
    ]


@check("NET122", severity="warning", cost="cluster", examples=_examples)
def adapters_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """InfiniBand or RoCE ports of some nodes differ from the others of their kind.

    ## Why it matters

    NCCL uses the ports that it finds. With one port fewer, or at a lower rate, a node slows down all others
    in every collective; if the names differ, a single NCCL_IB_HCA does not fit all nodes.

    ## How to fix

    Run `ibstat` on these nodes, and look for a bad cable, a port that runs at a lower rate, or a device that
    is missing in the container.
    """
    yield from differences(fleet.about("adapter"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{subject.name} {value}" if value else f"no {subject.name}"


_WORDS = Words(
    phrase=_phrase,
    singular="port",
    several="ports",
    read_from="/sys/class/infiniband on each node",
    remedy="run ibstat on these nodes",
)
