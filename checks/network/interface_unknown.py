"""NET103: a variable names a missing network interface, or uses a syntax that its reader does not accept."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import (
    gloo_wrong,
    has_gpus,
    is_other_syntax,
    nccl_takes,
    selection,
    usable,
)
from verl_doctor.checks.network._network_places import places
from verl_doctor.checks.shared.network_examples import (
    DOCKER0,
    ETH0,
    GPUS,
    LO,
    NO_GPUS,
    ONE,
    TWO,
    machine,
    script,
    shell,
)
from verl_doctor.toolkit.collectors.connections.network_variables import (
    GLOO,
    NCCL,
    TENSORPIPE,
    NetworkVariables,
)
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.network.network import Interface, Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_HERE = machine(
    LO,
    ETH0,
    DOCKER0,
    Interface(name="eth1", kind="ethernet", up=False),
    Interface(name="eth2", kind="ethernet", up=True),
)
_LONGEST = 60  # characters of a value that a sentence shows


def _examples() -> list[Example]:
    return [
        Example("an interface that exists", (_HERE, ONE, GPUS, *shell(GLOO_SOCKET_IFNAME="eth0"))),
        Example("torch splits at commas", (_HERE, TWO, GPUS, *shell(GLOO_SOCKET_IFNAME="eth0,docker0"))),
        Example("NCCL takes prefixes", (_HERE, TWO, GPUS, *shell(NCCL_SOCKET_IFNAME="eth,ib"))),
        Example("NCCL excludes", (_HERE, TWO, GPUS, *shell(NCCL_SOCKET_IFNAME="^lo,docker"))),
        Example("whole names", (_HERE, TWO, GPUS, *shell(NCCL_SOCKET_IFNAME="=eth0"))),
        Example(
            "the nodes with GPUs may have the interface: only a note",
            (_HERE, TWO, NO_GPUS, *shell(NCCL_SOCKET_IFNAME="ib0")),
            "begins with ib0",
        ),
        Example(
            "gloo does not support ^",
            (_HERE, ONE, NO_GPUS, *script("GLOO_SOCKET_IFNAME", "^lo,docker0")),
            "gloo does not support '^'",
        ),
        Example(
            "gloo keeps blanks as part of the name",
            (_HERE, TWO, GPUS, *shell(GLOO_SOCKET_IFNAME="eth0, docker0")),
            "' docker0' is not an interface of this machine",
        ),
        Example(
            "another cluster's interface",
            (_HERE, ONE, GPUS, *shell(GLOO_SOCKET_IFNAME="bond0")),
            "bond0 is not an interface of this machine",
        ),
        Example(
            "the interface is down", (_HERE, TWO, GPUS, *shell(GLOO_SOCKET_IFNAME="eth1")), "eth1 is down"
        ),
        Example(
            "the interface has no address",
            (_HERE, TWO, GPUS, *shell(GLOO_SOCKET_IFNAME="eth2")),
            "eth2 has no address",
        ),
        Example(
            "NCCL finds nothing",
            (_HERE, TWO, GPUS, *shell(NCCL_SOCKET_IFNAME="ens")),
            "no active interface begins with ens",
        ),
        Example(
            "NCCL finds no interface of this name",
            (_HERE, TWO, GPUS, *shell(NCCL_SOCKET_IFNAME="=eth")),
            "no active interface is called eth",
        ),
        Example(
            "everything is excluded",
            (_HERE, TWO, GPUS, *shell(NCCL_SOCKET_IFNAME="^lo,docker,eth")),
            "leaves no active interface",
        ),
    ]


@check("NET103", phase="workers", examples=_examples)
def interface_unknown(
    network: Network,
    nodes: JobNodes,
    resources: Resources | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """A variable names a missing network interface, or uses a syntax that its reader does not accept.

    ## Why it matters

    The two libraries read their variables differently. NCCL takes prefixes, `=` before whole names and `^` to
    exclude, and stops with `no socket interface found` when nothing is left. gloo takes exact names separated
    by commas: to it, `^docker0` or `=eth0` is a name, and it stops with `Unable to find address for:
    ^docker0`.

    ## How to fix

    Name an interface that `ip addr` shows as up with an address. If the names differ between nodes, set the
    variable on each node before Ray starts, not in a script or `runtime_env` that all of them share.
    """
    name = usable(network, nodes)
    for variable, judge in ((GLOO, gloo_wrong), (TENSORPIPE, gloo_wrong), (NCCL, _nccl)):
        for place in places(variable, variables):
            wrong = judge(place.value or "", network)
            if not wrong:
                continue
            # Without a GPU here, this machine only reads the script or runs the head: the nodes that train
            # may have other interfaces.
            elsewhere = not has_gpus(resources) and (
                variable == NCCL or (nodes.nodes != 1 and not is_other_syntax(place.value or "", network))
            )
            yield Finding(
                f"{place.assignment}: {wrong}",
                Evidence(
                    f"{place.assignment} in {place.where}",
                    _good(network),
                    "the kernel's list of interfaces",
                ),
                location=place.location,
                remedy=f"set {variable}={name}" if name else f"name {_good(network)}",
                severity="info" if elsewhere else "warning" if variable == TENSORPIPE else None,
                fix=None if elsewhere else "interface-name",
                subject=Subject("variable", variable),
            )


def _nccl(value: str, network: Network) -> str:
    wanted = selection(value)
    if len(value) < 2 or nccl_takes(network.interfaces, wanted):
        return ""
    names = " or ".join(wanted.names)[:_LONGEST]
    if wanted.exclude:
        return "it leaves no active interface with an address"
    return f"no active interface {'is called' if wanted.exact else 'begins with'} {names}"


def _good(network: Network) -> str:
    """The interfaces worth naming, as text, without loopback, which does not lead to other nodes."""
    names = [
        each.name for each in network.interfaces if each.up and each.addresses and each.kind != "loopback"
    ]
    return " or ".join(names) or "an active interface"
