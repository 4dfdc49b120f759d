"""HOST130: some nodes have other limits on processes, files or locked memory."""

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
            "a raylet that a service started",
            (fleet_of(8, ("limit", "open files", {"1048576": 7, "1024": (1, "node5")})),),
            "node5 has a limit on open files of 1024, the other 7 have a limit on open files of 1048576",
        ),
    ]


@check("HOST130", severity="warning", cost="cluster", examples=_examples)
def limits_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Limits on processes, files or locked memory differ on some nodes.

    ## Why it matters

    A job that runs on 99 nodes fails on the hundredth with *Too many open files* or *Resource temporarily
    unavailable*, hours after the start. The limits are those of the raylet, or of the shell that would start
    it.

    ## How to fix

    Start Ray on these nodes in the same way as on the others; a service needs its own `LimitNOFILE=`,
    `TasksMax=` and `LimitMEMLOCK=`.
    """
    yield from differences(fleet.about("limit"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"a limit on {subject.name} of {value}" if value != "unlimited" else f"no limit on {subject.name}"


_WORDS = Words(
    phrase=_phrase,
    singular="limit",
    several="limits",
    read_from="/proc/PID/limits of the raylet on each node",
    remedy="restart Ray there with the limits of the other nodes",
)
