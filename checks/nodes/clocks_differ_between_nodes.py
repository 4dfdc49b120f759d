"""NET120: clocks of some nodes are wrong by a second or more."""

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
            "one clock is ahead",
            (fleet_of(8, ("clock", "clock", {"+0.0 s": 7, "+63.0 s": (1, "node5")})),),
            "node5 has a clock that is +63.0 s off, the other 7 have a clock that is +0.0 s off",
        ),
    ]


@check("NET120", severity="warning", cost="cluster", examples=_examples)
def clocks_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Clocks of some nodes are off by a second or more.

    ## Why it matters

    Logs of several nodes cannot be put in order, timeouts that compare times of two nodes end too early, and
    tokens and certificates are refused if a clock is minutes off. Differences are measured against the
    machine that runs verl-doctor; the error is at most half of the response time.

    ## How to fix

    Run chrony or systemd-timesyncd on the hosts of these nodes (a container has the host's clock).
    """
    yield from differences(fleet.about("clock"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"a {subject.name} that is {value} off"


_WORDS = Words(
    phrase=_phrase,
    singular="clock",
    several="clocks",
    read_from="the time that each node reported",
    remedy="run timedatectl set-ntp true on these hosts",
)
