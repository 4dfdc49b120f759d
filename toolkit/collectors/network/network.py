"""How this machine is connected: interfaces with addresses, its name's addresses, and the default route."""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.system.errors import reason_of

Kind = Literal[
    "ethernet",
    "InfiniBand",
    "wireless",
    "loopback",
    "bridge",
    "veth",
    "tunnel",
    "bond",
    "VLAN",
    "virtual",
    "unknown",
]

# /sys/class/net/NAME/type, from the kernel's include/uapi/linux/if_arp.h.
_ARP_TYPES: dict[str, Kind] = {
    "32": "InfiniBand",
    "512": "tunnel",  # PPP
    "768": "tunnel",  # IP in IP
    "769": "tunnel",  # IPv6 in IPv6
    "772": "loopback",
    "776": "tunnel",  # IPv6 in IPv4
    "778": "tunnel",  # GRE
    "65534": "tunnel",  # no link layer: tun, WireGuard
}
# DEVTYPE in /sys/class/net/NAME/uevent, as the kernel's drivers set it.
_DEVICE_TYPES: dict[str, Kind] = {
    "bond": "bond",
    "bridge": "bridge",
    "geneve": "tunnel",
    "vlan": "VLAN",
    "vxlan": "tunnel",
    "wireguard": "tunnel",
    "wlan": "wireless",
}
_RESOLVING = 2.5  # seconds; the resolver's own limit is 5 s per server and attempt
_GATEWAY = 0x2  # RTF_GATEWAY
_UP = 0x1  # RTF_UP


@dataclass(frozen=True)
class Interface:
    """One network interface. `up`: it is switched on and has a carrier.

    `addresses` have no scope; IPv4 comes first, as getifaddrs(3) returns them to NCCL and gloo.
    """

    name: str
    kind: Kind
    up: bool
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resolved:
    """The resolver's result for a name, in its order. `failed` is the reason for a failure, else ""."""

    name: str
    addresses: tuple[str, ...] = ()
    failed: str = ""
    hangs: bool = False


@dataclass(frozen=True)
class Network:
    """How this machine is connected.

    `host` is this machine's own name, `hosts_line` the line of `/etc/hosts` that gives it an address, 0 for
    none.

    `interfaces` are in the kernel's order. `default` is the interface of the default route, "" if there is
    none.
    """

    host: Resolved
    interfaces: tuple[Interface, ...] = ()
    default: str = ""
    hosts_line: int = 0

    def interface(self, name: str) -> Interface | None:
        """Return the interface with this name."""
        return next((each for each in self.interfaces if each.name == name), None)

    def owner_of(self, address: str) -> Interface | None:
        """Return the interface with this address; loopback has all of 127.0.0.0/8."""
        for each in self.interfaces:
            if address in each.addresses or (each.kind == "loopback" and _is_loopback(address)):
                return each
        return None


@collector(timeout=8)
def network(machine: Machine) -> Network | Unknown:
    """Query the kernel and the resolver.

    Only the resolver may send anything, to look up this machine's name.
    """
    if sys.platform != "linux":
        return Absent("network interfaces are checked on Linux only")
    name = socket.gethostname()
    try:
        interfaces = tuple(_interfaces(machine))
    except OSError as error:
        return Unknown(f"the kernel does not list this machine's network interfaces: {error.strerror}")
    return Network(
        resolve(name),
        interfaces,
        _default_route(machine),
        _line_in_hosts(machine.read("/etc/hosts") or "", name),
    )


def resolve(name: str, limit: float = _RESOLVING) -> Resolved:
    """Resolve a name as a job would, for at most `limit` seconds: a dead name server is slow to time out."""
    reply: list[Resolved] = []

    def query() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reply.append(Resolved(name, failed=reason_of(error)))
        else:
            spelled = (_plain(str(each[4][0])) for each in found)
            reply.append(Resolved(name, tuple(dict.fromkeys(filter(is_address, spelled)))))

    started = time.monotonic()
    thread = threading.Thread(target=query, name=f"resolve {name}", daemon=True)
    thread.start()
    with TURNS.waiting():
        thread.join(limit)
    if reply:
        return reply[0]
    return Resolved(name, failed=f"no response within {time.monotonic() - started:.1f} s", hangs=True)


def source_towards(address: str) -> str:
    """Return the address from which this machine reaches another, by its routes; "" without a route.

    Connecting a datagram socket sends nothing: the kernel only looks up the route.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.connect((address, 9))
            return _plain(str(sender.getsockname()[0]))
    except OSError:
        return ""


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, rather than a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def with_port(host: str, port: int) -> str:
    """Join both as usual: 10.0.0.1:6379, [::1]:6379; port 0 is omitted."""
    host = f"[{host}]" if ":" in host and port else host
    return f"{host}:{port}" if port else host


def _interfaces(machine: Machine) -> Iterator[Interface]:
    import psutil  # noqa: PLC0415 - ten milliseconds

    states = psutil.net_if_stats()
    for name, found in psutil.net_if_addrs().items():
        spelled = (_plain(each.address) for each in found if each.family in (socket.AF_INET, socket.AF_INET6))
        state = states.get(name)
        yield Interface(
            name,
            kind_of(machine, name),
            up=state is not None and state.isup,
            addresses=tuple(dict.fromkeys(filter(is_address, spelled))),
        )


def kind_of(machine: Machine, name: str) -> Kind:
    """Return the kind of an interface, from its driver's entries below `/sys/class/net`."""
    folder = f"/sys/class/net/{name}"
    number = (machine.read(f"{folder}/type") or "").strip()
    if number in _ARP_TYPES:
        return _ARP_TYPES[number]
    if not number:
        return "loopback" if name == "lo" else "unknown"
    for line in (machine.read(f"{folder}/uevent") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "DEVTYPE" and value in _DEVICE_TYPES:
            return _DEVICE_TYPES[value]
    entries = {entry.name for entry in machine.at(folder).iterdir()}
    if "tun_flags" in entries:
        return "tunnel"
    if entries & {"wireless", "phy80211"}:
        return "wireless"
    if "device" in entries:
        return "ethernet"
    paired = machine.read(f"{folder}/iflink") != machine.read(f"{folder}/ifindex")
    if paired and not any(entry.startswith("lower_") for entry in entries):
        return "veth"  # the other end is an interface, here or in another network namespace
    return "virtual"


def _default_route(machine: Machine) -> str:
    """Return the interface of the lowest-metric default route, of IPv4 or else IPv6 (proc_pid_net(5))."""
    found = []
    for line in (machine.read("/proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000" and int(fields[3], 16) & _UP:
            found.append((int(fields[6]), fields[0]))
    if not found:
        for line in (machine.read("/proc/net/ipv6_route") or "").splitlines():
            fields = line.split()
            flags = int(fields[8], 16) if len(fields) > 9 else 0
            if fields[:2] == ["0" * 32, "00"] and flags & _UP and flags & _GATEWAY:
                found.append((int(fields[5], 16), fields[9]))
    return min(found)[1] if found else ""


def _line_in_hosts(text: str, name: str) -> int:
    """Return the first line that gives this name an address: hosts(5)."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if name.lower() in (word.lower() for word in words[1:]):
            return number
    return 0


def _plain(address: str) -> str:
    """Strip the scope of a link-local address ("fe80::1%eth0")."""
    return address.partition("%")[0]


def _is_loopback(address: str) -> bool:
    return is_address(address) and ipaddress.ip_address(address).is_loopback
