"""NET117: this machine's clock is not synchronised, and the job spans several nodes."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import one_machine
from verl_doctor.checks.shared.network_examples import ONE, TWO
from verl_doctor.toolkit.collectors.host.clock import Clock
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("synchronised", (Clock(synchronised=True, error=0.03, now=1.8e9, monotonic=9.0), TWO)),
        Example("one node", (Clock(synchronised=False, error=16, now=1.8e9, monotonic=9.0), ONE)),
        Example(
            "no time server",
            (Clock(synchronised=False, error=16, now=1.8e9, monotonic=9.0), TWO),
            "not synchronised",
        ),
    ]


@check("NET117", severity="info", applies=one_machine, examples=_examples)
def clock_not_synchronised(clock: Clock, nodes: JobNodes) -> Iterator[Finding]:
    """This machine's clock is not synchronised, and the job spans several nodes.

    ## Why it matters

    Clocks that differ by seconds make the logs of several nodes misleading; by minutes, certificates and
    tokens become invalid. The finding means only that no time server is followed, not that the clock is
    wrong.

    ## How to fix

    Run chrony or systemd-timesyncd on the host; containers use the host's clock. `timedatectl` and `chronyc
    tracking` show the state.
    """
    if not clock.synchronised:
        yield Finding(
            "this machine's clock is not synchronised with a time server, according to the kernel",
            Evidence(f"unsynchronised; {nodes.several}", "synchronised", "adjtimex(2)"),
            subject=Subject("resource", "clock"),
            remedy="run timedatectl set-ntp true on the host",
        )
