"""NET105: no variable names an interface, and the one that gloo or NCCL chooses reaches no other node."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import (
    bad_ones,
    chosen,
    gloo_chooses,
    is_outside,
    leads_nowhere,
    nccl_chooses,
    one_machine,
    remedy,
)
from verl_doctor.checks.shared.network_examples import (
    ACTIVE,
    BRIDGE,
    DOCKER0,
    ETH0,
    LO,
    NO_RDMA,
    ONE,
    PUBLIC,
    TWO,
    UNSET_IB,
    VETH,
    machine,
    named,
    shell,
)
from verl_doctor.toolkit.collectors.connections.network_variables import GLOO, NCCL, NetworkVariables
from verl_doctor.toolkit.collectors.network.network import Interface, Network
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("NCCL skips docker0", (machine(LO, DOCKER0, ETH0), TWO, NO_RDMA, *shell())),
        Example("one node", (machine(LO, BRIDGE, ETH0), ONE, NO_RDMA, *shell())),
        Example(
            "a variable names the interface",
            (machine(LO, BRIDGE, ETH0), TWO, NO_RDMA, *shell(NCCL_SOCKET_IFNAME="=eth0")),
        ),
        Example(
            "a pod whose only interface is one end of a pair",
            (
                machine(LO, Interface(name="eth0", kind="veth", up=True, addresses=("10.0.0.5",))),
                TWO,
                NO_RDMA,
                *shell(),
            ),
        ),
        Example(
            "IP over InfiniBand",
            (
                machine(LO, ETH0, Interface(name="ib0", kind="InfiniBand", up=True, addresses=("10.1.0.5",))),
                TWO,
                ACTIVE,
                *shell(),
            ),
        ),
        Example(
            "a bridge comes first",
            (machine(LO, BRIDGE, ETH0), TWO, ACTIVE, *shell()),
            "br-3f2a, a bridge interface",
        ),
        Example(
            "a container's end is used for data too",
            (machine(LO, ETH0, DOCKER0, VETH), TWO, NO_RDMA, *shell()),
            "also sends its data over veth9, an interface that has only",
        ),
        Example(
            "InfiniBand without an IP address",
            (machine(LO, ETH0, UNSET_IB), TWO, ACTIVE, *shell()),
            "ibs1, an interface that has only the link-local address",
        ),
        Example(
            "the name resolves to a public address",
            (PUBLIC, TWO, NO_RDMA, *shell()),
            "is on the public internet",
        ),
        Example(
            "the name resolves to docker's bridge",
            (named("172.17.0.1"), TWO, NO_RDMA, *shell()),
            "gloo uses docker0",
        ),
    ]


@check("NET105", phase="workers", applies=one_machine, examples=_examples)
def interface_left_to_chance(
    network: Network,
    nodes: JobNodes,
    rdma: Rdma | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """No variable names an interface, and the one that gloo or NCCL chooses reaches no other node.

    ## Why it matters

    Without NCCL_SOCKET_IFNAME, NCCL uses the interfaces whose names begin with `ib`, or else all but
    `docker*`, `lo` and `virbr*`, in the kernel's order. That includes docker compose's bridges (`br-...`),
    containers' virtual interfaces (`veth...`) and tunnels, whose addresses exist on every node and do not
    lead to any other. Without GLOO_SOCKET_IFNAME, gloo uses the address of the machine's own name.

    ## How to fix

    On each node, before Ray starts, set both variables to the interface that leads to the other nodes. The
    finding names this node's.
    """
    if not chosen(NCCL, variables):
        taken = nccl_chooses(network.interfaces)
        bad = bad_ones(taken, nodes, rdma)
        if bad:
            interface, why = bad[0]
            first = interface == taken[0][0]
            how = "connects to the other nodes over" if first else "also sends its data over"
            yield Finding(
                f"NCCL_SOCKET_IFNAME is not set, so NCCL {how} {interface.name}, {why}",
                Evidence(
                    f"NCCL uses {', '.join(each.name for each, _ in taken)}; {nodes.several}",
                    nodes.interface,
                    "NCCL's search order, applied to the interfaces of this machine",
                ),
                remedy=remedy(NCCL, network, nodes),
                severity=None if first else "warning",
                fix="interface-that-is-chosen",
                subject=Subject("variable", NCCL),
            )
    address = gloo_chooses(network)
    owner = network.owner_of(address)
    if owner is None or owner.kind == "loopback" or chosen(GLOO, variables):
        return
    why = leads_nowhere(owner, address, nodes)
    inner = is_outside(address, network, nodes)
    if inner:
        why = f"whose address {address} is on the public internet; the other nodes are reached from {inner}"
    if why:
        yield Finding(
            f"GLOO_SOCKET_IFNAME is not set, so gloo uses {owner.name}, {why}",
            Evidence(
                f"{network.host.name} resolves to {address}; {nodes.several}",
                nodes.interface,
                "getaddrinfo(3) on this machine",
            ),
            remedy=remedy(GLOO, network, nodes),
            severity="warning" if inner else None,
            fix="interface-that-is-chosen",
            subject=Subject("variable", GLOO),
        )
