"""RAY145: nodes of the cluster have different versions of Ray."""

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
            "one node with a newer Ray",
            (fleet_of(16, ("package", "ray", {"2.49.0": 15, "2.50.0": (1, "node9")})),),
            "node9 has Ray 2.50.0, the other 15 have Ray 2.49.0",
        ),
    ]


@check("RAY145", phase="ray", severity="error", cost="cluster", examples=_examples)
def ray_differs_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Nodes of the cluster have different versions of Ray.

    ## Why it matters

    All nodes of a cluster must run the same Ray: `ray start` and `ray.init` refuse a cluster whose head has
    another version of Ray (ray/_private/utils.py, `check_version_info`). A node that is in the cluster anyway
    was upgraded after it joined, and its next workers will not start.

    ## How to fix

    Install the same Ray on these nodes and restart it there.
    """
    yield from differences((subject for subject in fleet.about("package") if subject.name == "ray"), _WORDS)


def _phrase(_: Subject, value: str) -> str:
    return f"Ray {value}"


_WORDS = Words(
    phrase=_phrase,
    singular="package",
    several="packages",
    read_from="the metadata of the installed packages on each node",
    remedy="install the same Ray, then restart Ray on these nodes",
)
