"""NET111: NCCL_IB_DISABLE=1, although InfiniBand ports are active."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import one_machine
from verl_doctor.checks.network._network_places import places
from verl_doctor.checks.shared.network_examples import ONE, TWO, adapters, script, shell
from verl_doctor.toolkit.collectors.connections.network_variables import NO_INFINIBAND, NetworkVariables
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("in use", (adapters("ACTIVE"), TWO, *shell())),
        Example("0 disables nothing", (adapters("ACTIVE"), TWO, *shell(NCCL_IB_DISABLE="0"))),
        Example("one node", (adapters("ACTIVE"), ONE, *shell(NCCL_IB_DISABLE="1"))),
        Example("nothing to switch off", (adapters("DOWN"), TWO, *shell(NCCL_IB_DISABLE="1"))),
        Example(
            "left over from debugging",
            (adapters("ACTIVE", "ACTIVE"), TWO, *script("NCCL_IB_DISABLE", "1")),
            "2 ports with 400 Gb/sec",
        ),
    ]


@check("NET111", severity="info", applies=one_machine, examples=_examples)
def infiniband_switched_off(
    rdma: Rdma,
    nodes: JobNodes,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """NCCL_IB_DISABLE=1, although InfiniBand ports are active.

    ## Why it matters

    The variable is set to debug a hang, and then stays in scripts. All traffic between nodes then goes
    over TCP, at a fraction of the bandwidth.

    ## How to fix

    Remove it and run `all_reduce_perf` of nccl-tests, or one step of the job. If that hangs, the cause is
    elsewhere: NCCL_DEBUG=INFO shows the adapter.
    """
    for place in places(NO_INFINIBAND, variables):
        if rdma.active and place.value not in (None, "", "0"):
            yield Finding(
                f"{place.assignment} disables {len(rdma.active)} ports with {rdma.active[0].rate}",
                Evidence(
                    f"{place.assignment} in {place.where}; {nodes.several}",
                    "not set",
                    "/sys/class/infiniband",
                ),
                subject=Subject("variable", NO_INFINIBAND),
                location=place.location,
                remedy=f"remove {NO_INFINIBAND} and try the job again",
            )
