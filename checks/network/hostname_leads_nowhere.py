"""NET102: this machine's name does not resolve, or resolves to another machine's address."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import chosen, gloo_chooses, has_gpus, remedy
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
        Example(
            "gloo skips an address that is not the machine's", (named("10.9.9.9", "10.0.0.5"), TWO, *shell())
        ),
        Example("one node does not need it", (named(failed="Name or service not known"), ONE, *shell())),
        Example(
            "gloo has an interface of its own", (named("10.9.9.9"), TWO, *shell(GLOO_SOCKET_IFNAME="eth0"))
        ),
        Example(
            "two nodes, and the name is unknown",
            (named(failed="Name or service not known"), TWO, *shell()),
            "node1 does not resolve",
        ),
        Example(
            "an address of the previous machine",
            (named("10.9.9.9"), TWO, *shell()),
            "10.9.9.9, which no interface of this machine has",
        ),
        Example(
            "the name server is dead",
            (named(failed="no response within 2.5 s", hangs=True), ONE, *shell()),
            "no response within 2.5 s",
        ),
    ]


@check("NET102", phase="ray", examples=_examples)
def hostname_leads_nowhere(
    network: Network,
    nodes: JobNodes,
    resources: Resources | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """This machine's name does not resolve, or resolves to another machine's address.

    ## Why it matters

    gloo listens on the address of the machine's own name. If no interface has it, PyTorch warns `Unable to
    resolve hostname to a (local) address. Using the loopback address as fallback`, and the other nodes cannot
    connect. If the name server does not respond, every process waits for it, even on a single node.

    ## How to fix

    Map the name to the node's address in /etc/hosts, or set GLOO_SOCKET_IFNAME to the interface in the
    finding before Ray starts.
    """
    host = network.host
    line = Location("/etc/hosts", network.hosts_line) if network.hosts_line else None
    if host.hangs:
        yield Finding(
            f"looking up this machine's own name, {host.name}, hangs: {host.failed}",
            Evidence(host.failed, "an immediate answer", "getaddrinfo(3) on this machine"),
            remedy=(
                f"add the node's address and {host.name} to /etc/hosts, or fix the name server in "
                "/etc/resolv.conf"
            ),
            severity=None if nodes.several else "warning",
            fix="gloo-interface-for-lost-name" if nodes.several else None,
            subject=Subject("node", host.name),
        )
        return
    if gloo_chooses(network) or not nodes.several or chosen(GLOO, variables):
        return
    if host.failed:
        message = f"{host.name} does not resolve: {host.failed}"
    else:
        message = f"{host.name} resolves to {host.addresses[0]}, which no interface of this machine has"
    yield Finding(
        f"{message}; gloo falls back to 127.0.0.1, which other nodes cannot reach",
        Evidence(
            f"{', '.join(host.addresses) or host.failed}; {nodes.several}",
            "an address of this machine",
            "getaddrinfo(3) on this machine",
        ),
        location=line,
        remedy=remedy(GLOO, network, nodes),
        severity=None if has_gpus(resources) else "warning",
        fix="gloo-interface-for-lost-name",
        subject=Subject("node", host.name),
    )
