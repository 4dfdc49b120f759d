"""How far this node's clock is ahead of that of the machine from which the whole cluster is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, Unknown, collector


@dataclass(frozen=True)
class ClockOffset:
    """`ahead` is in seconds, negative when the clock is behind. The truth is no further from it than `within`.

    It is measured as NTP does it (RFC 5905, section 8): half of the time that question and answer took is how wrong it may be.
    """

    ahead: float
    within: float


@collector()
def clock_offset() -> ClockOffset | Unknown:
    """It takes two machines: who asks the nodes of a cluster puts it beside their facts (`cluster.through_ray`)."""
    return Absent("clocks are compared where several nodes are looked at: check --cluster")
