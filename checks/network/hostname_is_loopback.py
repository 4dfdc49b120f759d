"""NET101: this machine's name resolves to loopback, and the job spans several nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import chosen, gloo_chooses, has_gpus, one_machine, remedy
from verl_doctor.checks.shared.network_examples import ONE, TWO, named, shell
from verl_doctor.toolkit.collectors.connections.network_variables import GLOO, NetworkVariables
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check


def _examples() -> list[Example]:
    return [
        Example("an address of its own", (named("10.0.0.5"), TWO, *shell())),
        Example("one node: loopback is harmless", (named("127.0.1.1", line=2), ONE, *shell())),
        Example(
            "gloo has an interface of its own", (named("127.0.1.1"), TWO, *shell(GLOO_SOCKET_IFNAME="eth0"))
        ),
        Example(
            "Debian's default, and two nodes",
            (named("127.0.1.1", line=2), TWO, *shell()),
            "node1 resolves to 127.0.1.1",
        ),
    ]


@check("NET101", phase="ray", applies=one_machine, examples=_examples)
def hostname_is_loopback(
    network: Network,
    nodes: JobNodes,
    resources: Resources | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """This machine's name resolves to loopback, and the job spans several nodes.

    ## Why it matters

    gloo listens on the address to which the machine's own name resolves, and advertises it to the other
    nodes. They connect to 127.0.0.1, which is each node itself: `Gloo connectFullMesh failed`. The installers
    of Debian and Ubuntu write such a line to /etc/hosts, as do many container images. On one node it is
    harmless.

    ## How to fix

    On each node, before Ray starts, set GLOO_SOCKET_IFNAME to the interface that leads to the other nodes;
    the finding names it. Or map the name to the node's real address in /etc/hosts.
    """
    address, host = gloo_chooses(network), network.host
    if address and ipaddress.ip_address(address).is_loopback and not chosen(GLOO, variables):
        line = Location("/etc/hosts", network.hosts_line) if network.hosts_line else None
        yield Finding(
            f"{host.name} resolves to {address}, so gloo makes the other nodes connect to themselves",
            Evidence(
                f"{host.name} is {', '.join(host.addresses)}; {nodes.several}",
                "an address that other nodes reach",
                "getaddrinfo(3) on this machine",
            ),
            location=line,
            remedy=remedy(GLOO, network, nodes),
            severity=None if has_gpus(resources) else "warning",
            fix="gloo-interface",
            subject=Subject("node", host.name),
        )
