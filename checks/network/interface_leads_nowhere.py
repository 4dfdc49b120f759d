"""NET104: a variable selects an interface over which no other node is reached."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import (
    bad_ones,
    gloo_names,
    gloo_wrong,
    leads_nowhere,
    nccl_takes,
    one_machine,
    remedy,
    selection,
)
from verl_doctor.checks.network._network_places import places
from verl_doctor.checks.shared.network_examples import (
    ACTIVE,
    BRIDGE,
    DOCKER0,
    ETH0,
    LO,
    NO_RDMA,
    ONE,
    TWO,
    machine,
    script,
    shell,
)
from verl_doctor.toolkit.collectors.connections.network_variables import GLOO, NCCL, NetworkVariables
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_HERE = machine(LO, ETH0, DOCKER0, BRIDGE)


def _examples() -> list[Example]:
    return [
        Example("the interface towards the head", (_HERE, TWO, NO_RDMA, *shell(GLOO_SOCKET_IFNAME="eth0"))),
        Example(
            "one node may use loopback",
            (_HERE, ONE, NO_RDMA, *shell(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")),
        ),
        Example("InfiniBand carries the data", (_HERE, TWO, ACTIVE, *shell(NCCL_SOCKET_IFNAME="^lo,docker"))),
        Example(
            "another rule reports what gloo cannot use",
            (_HERE, TWO, NO_RDMA, *shell(GLOO_SOCKET_IFNAME="^eth0,lo")),
        ),
        Example(
            "gloo on loopback",
            (_HERE, TWO, NO_RDMA, *shell(GLOO_SOCKET_IFNAME="lo")),
            "lo is the loopback interface",
        ),
        Example(
            "NCCL on docker's bridge",
            (_HERE, TWO, ACTIVE, *script("NCCL_SOCKET_IFNAME", "docker0")),
            "docker0 is a bridge interface",
        ),
        Example(
            "a bridge is not excluded",
            (_HERE, TWO, NO_RDMA, *shell(NCCL_SOCKET_IFNAME="^lo,docker")),
            "br-3f2a is a bridge interface",
        ),
    ]


@check("NET104", phase="workers", applies=one_machine, examples=_examples)
def interface_leads_nowhere(
    network: Network,
    nodes: JobNodes,
    rdma: Rdma | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """A variable selects an interface over which no other node can be reached.

    ## Why it matters

    gloo listens on the named interface, and NCCL on the first that matches; without InfiniBand NCCL also
    sends data over all others that match. Loopback, docker's bridges and link-local addresses exist on every
    node and do not lead to any other: the job hangs in its first collective operation, or fails with
    `connectFullMesh failed`.

    ## How to fix

    Name the interface that leads to the other nodes; `ip route get ADDRESS-OF-THE-HEAD` shows it. For NCCL
    write `=eth0`, because a bare name is a prefix.
    """
    for variable in (GLOO, NCCL):
        for place in places(variable, variables):
            value = place.value or ""
            if len(value) < 2 or (variable == GLOO and gloo_wrong(value, network)):
                continue
            if variable == GLOO:
                named = filter(None, map(network.interface, gloo_names(value)))
                bad = [
                    (each, why) for each in named if (why := leads_nowhere(each, each.addresses[0], nodes))
                ]
            else:
                bad = bad_ones(nccl_takes(network.interfaces, selection(value)), nodes, rdma)
            if bad:
                interface, why = bad[0]
                yield Finding(
                    f"{place.assignment}: {interface.name} is {why}",
                    Evidence(
                        f"{interface.name} ({', '.join(interface.addresses)}); {nodes.several}",
                        nodes.interface,
                        "the kernel's list of interfaces and routes",
                    ),
                    location=place.location,
                    remedy=remedy(variable, network, nodes),
                    fix="interface-that-leads-out",
                    subject=Subject("variable", variable),
                )
