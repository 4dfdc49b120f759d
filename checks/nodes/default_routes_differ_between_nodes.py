"""NET121: the default route of some nodes is another interface."""

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
            "one node is connected differently",
            (fleet_of(8, ("route", "default route", {"bond0": 7, "eno1": (1, "node5")})),),
            "node5 has its default route through eno1, the other 7 have its default route through bond0",
        ),
    ]


@check("NET121", severity="warning", cost="cluster", examples=_examples)
def default_routes_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """The default route of some nodes uses a different interface.

    ## Why it matters

    NCCL and gloo use the first suitable interface unless NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name one.
    If nodes are connected differently, one name does not fit all, and ranks wait for each other on networks
    that are not connected.

    ## How to fix

    Set a value that fits all nodes, for instance prefixes (`NCCL_SOCKET_IFNAME=bond,eno`), or set it on these
    nodes only.
    """
    yield from differences(fleet.about("route"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"its {subject.name} through {value or 'nothing'}"


_WORDS = Words(
    phrase=_phrase,
    singular="route",
    several="routes",
    read_from="/proc/net/route on each node",
    remedy="compare ip route on one of these nodes and on another",
)
