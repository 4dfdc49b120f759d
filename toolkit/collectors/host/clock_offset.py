"""How far this node's clock is ahead of the clock of the machine from which the whole cluster is checked."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, Unknown, collector


@dataclass(frozen=True)
class ClockOffset:
    """How far the clock is `ahead`, in seconds, negative if it is slow.

    The true value is at most `within` away.

    It is measured as in NTP (RFC 5905, section 8): the error is at most half the round-trip time.
    """

    ahead: float
    within: float


@collector()
def clock_offset() -> ClockOffset | Unknown:
    """Requires two machines.

    The code that queries a cluster's nodes adds it to their facts (`cluster.through_ray`).
    """
    return Absent("clocks are compared only if several nodes are checked: check --cluster")
