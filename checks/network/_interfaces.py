"""The network interface that gloo and NCCL use: selected here by their variables, or their default."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.connections.network_variables import NetworkVariables
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.network.network import Interface, Network
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown

# Kinds that lead to containers and virtual machines of this host, or to a single peer, unless the routes use
# them too.
_INSIDE = frozenset({"bridge", "veth", "tunnel", "virtual"})
_LONGEST = 60  # characters of a name that a sentence shows
_MOST = 16  # MAX_IFS in NCCL's src/include/socket.h


@dataclass(frozen=True)
class Selection:
    """Interface names as NCCL reads them: prefixes, or whole names after "="; a leading "^" excludes them.

    NVIDIA/nccl, src/misc/socket.cc and src/os/linux.cc.
    """

    names: tuple[str, ...]
    exclude: bool = False
    exact: bool = False

    def takes(self, name: str) -> bool:
        """Whether an interface is selected; an empty list selects all, or excludes all after "^"."""
        if not self.names:
            return not self.exclude
        if self.exact:
            return (name in self.names) != self.exclude
        return name.startswith(self.names) != self.exclude


def selection(value: str) -> Selection:
    """Parse NCCL's syntax. In NCCL_IB_HCA, a colon precedes the port of an adapter."""
    exclude = value.startswith("^")
    rest = value.removeprefix("^")
    exact = rest.startswith("=")
    words = rest.removeprefix("=").split(",")
    return Selection(tuple(name for word in words if (name := word.partition(":")[0])), exclude, exact)


def takes_port(value: str, port: Port) -> bool:
    """Whether NCCL_IB_HCA selects a port: by its adapter, and by the number after a colon if there is one."""
    wanted = selection(value)
    for word in value.lstrip("^=").split(","):
        name, _, number = word.partition(":")
        fits = port.adapter == name if wanted.exact else port.adapter.startswith(name)
        if name and fits and (not number or number == str(port.number)):
            return not wanted.exclude
    return wanted.exclude if wanted.names else not wanted.exclude


def nccl_takes(interfaces: Iterable[Interface], wanted: Selection) -> list[tuple[Interface, str]]:
    """The interfaces that NCCL uses, each with its address: those that are up, IPv4 first.

    IPv6 loopback is never among them.
    """
    usable = [each for each in interfaces if each.up and wanted.takes(each.name)]
    found: dict[str, tuple[Interface, str]] = {}
    for version in (4, 6):
        for each in usable:
            for text in each.addresses:
                address = ipaddress.ip_address(text)
                if address.version == version and not (version == 6 and address.is_loopback):
                    found.setdefault(each.name, (each, text))
    return list(found.values())[:_MOST]


def nccl_chooses(interfaces: Iterable[Interface]) -> list[tuple[Interface, str]]:
    """The interfaces that NCCL uses when no variable names any.

    Its processes find each other over the first.
    """
    listed = list(interfaces)
    searches = (
        nccl_takes(listed, selection(names)) for names in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
    )
    return next((found for found in searches if found), [])


def gloo_names(value: str) -> list[str]:
    """The names that torch passes to gloo, split at commas only (ProcessGroupGloo's binding).

    A value of one character counts as unset.
    """
    return [name for name in value.split(",") if name] if len(value) > 1 else []


def gloo_wrong(value: str, network: Network) -> str:
    """Why gloo cannot use these names; "" if it can."""
    return next((wrong for name in gloo_names(value) if (wrong := _name_wrong(name, network))), "")


def is_other_syntax(value: str, network: Network) -> bool:
    """Whether the first of these names that gloo cannot use is written in NCCL's syntax."""
    first = next((name for name in gloo_names(value) if _name_wrong(name, network)), "")
    return first[:1] in ("^", "=") and network.interface(first) is None


def _name_wrong(name: str, network: Network) -> str:
    interface = network.interface(name)
    if name[0] in "^=" and interface is None:
        return f"gloo does not support '{name[0]}' and looks for an interface named {name[:_LONGEST]}"
    if interface is None:
        return (
            f"{(repr(name) if name != name.strip() else name)[:_LONGEST]} is not an interface of this machine"
        )
    if not interface.up:
        return f"{name} is down"
    return "" if interface.addresses else f"{name} has no address"


def gloo_chooses(network: Network) -> str:
    """The address on which gloo listens when no variable names an interface.

    It is the first address of this machine's name that belongs to the machine.

    "" if none does: torch then uses 127.0.0.1 (createDefaultDevice in ProcessGroupGloo.cpp).
    """
    return next((address for address in network.host.addresses if network.owner_of(address)), "")


def leads_nowhere(interface: Interface, address: str, nodes: JobNodes) -> str:
    """Why another node cannot be reached over this interface with this address; "" without a known reason."""
    known = ipaddress.ip_address(address)
    if known.is_loopback:
        return "the loopback interface, which does not reach other machines"
    if known.is_link_local:
        return f"an interface that has only the link-local address {address}"
    if interface.kind in _INSIDE and interface.name != nodes.interface:
        return f"a {interface.kind} interface, which leads to containers or a tunnel, not to the other nodes"
    return ""


def is_outside(address: str, network: Network, nodes: JobNodes) -> str:
    """A private address towards the other nodes if the given one is on the public internet; otherwise ""."""
    towards = network.interface(nodes.interface)
    if towards is None or address in towards.addresses or not ipaddress.ip_address(address).is_global:
        return ""
    return next((each for each in towards.addresses if ipaddress.ip_address(each).is_private), "")


def one_machine(nodes: JobNodes) -> str | None:
    """Why a rule about several machines does not apply; None if it does."""
    return None if nodes.several else "no sign that the job runs on more than one machine"


def bad_ones(
    taken: list[tuple[Interface, str]], nodes: JobNodes, rdma: Rdma | Unknown
) -> list[tuple[Interface, str]]:
    """The interfaces that NCCL would use and that lead nowhere.

    If InfiniBand carries the data, only the first is used.
    """
    carried = not isinstance(rdma, Unknown) and bool(rdma.active)
    used = taken[:1] if carried else taken
    return [(each, why) for each, address in used if (why := leads_nowhere(each, address, nodes))]


def has_gpus(resources: Resources | Unknown) -> bool:
    """Whether the job's models run here. A head without GPUs takes no part in collectives."""
    return not isinstance(resources, Unknown) and bool(resources.gpus)


def chosen(name: str, variables: NetworkVariables) -> bool:
    """Whether the job's workers have this variable, with any value."""
    return bool(variables.of(name))


def usable(network: Network, nodes: JobNodes) -> str:
    """The interface that leads to the other nodes, if known; otherwise ""."""
    found = network.interface(nodes.interface)
    if found is None or not found.up or not found.addresses or found.kind == "loopback":
        return ""
    return found.name


def remedy(variable: str, network: Network, nodes: JobNodes) -> str:
    """What to set, with the interface's name on this node if it is known."""
    name = usable(network, nodes)
    here = f"={name} on this node" if name else " to the interface that leads to the other nodes"
    return f"set {variable}{here}; the name may differ on other nodes"
