"""Interfaces, routes and this machine's name, from small recorded trees and stubs of the kernel's answers."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from verl_doctor.toolkit.collectors.network.network import (
    Interface,
    Network,
    Resolved,
    kind_of,
    network,
    resolve,
    source_towards,
    with_port,
)
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine


def recorded(root: Path, files: dict[str, str]) -> Machine:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root=root)


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("loopback", {"type": "772\n"}),
        ("InfiniBand", {"type": "32\n", "device/vendor": ""}),
        ("tunnel", {"type": "65534\n", "tun_flags": "0x1001\n"}),
        ("tunnel", {"type": "1\n", "uevent": "DEVTYPE=vxlan\n"}),
        ("tunnel", {"type": "1\n", "uevent": "", "tun_flags": "0x1002\n"}),
        ("bridge", {"type": "1\n", "uevent": "DEVTYPE=bridge\nINTERFACE=x\n"}),
        ("bond", {"type": "1\n", "uevent": "DEVTYPE=bond\n"}),
        ("VLAN", {"type": "1\n", "uevent": "DEVTYPE=vlan\n", "ifindex": "9", "iflink": "2", "lower_eth0/type": ""}),
        ("wireless", {"type": "1\n", "uevent": "", "phy80211/name": "", "device/vendor": ""}),
        ("ethernet", {"type": "1\n", "uevent": "", "device/vendor": "", "ifindex": "2", "iflink": "2"}),
        ("veth", {"type": "1\n", "uevent": "", "ifindex": "9", "iflink": "8"}),
        ("virtual", {"type": "1\n", "uevent": "", "ifindex": "9", "iflink": "9"}),
        ("virtual", {"type": "1\n", "uevent": "", "ifindex": "9", "iflink": "2", "lower_eth0/type": ""}),
        ("unknown", {"uevent": ""}),
    ],
)  # fmt: skip
def test_kind_of_an_interface(tmp_path: Path, kind: str, files: dict[str, str]) -> None:
    machine = recorded(tmp_path, {f"sys/class/net/x/{name}": text for name, text in files.items()})
    assert kind_of(machine, "x") == kind


def test_loopback_is_recognised_without_sysfs(tmp_path: Path) -> None:
    assert kind_of(Machine(root=tmp_path), "lo") == "loopback"


ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth1 00000000 010200C0 0003 0 0 600 00000000 0 0 0
eth0 00000000 010200C0 0003 0 0 100 00000000 0 0 0
eth2 00000000 010200C0 0000 0 0 1 00000000 0 0 0
eth3 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""
ROUTES6 = """fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth7
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth6
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
"""


@pytest.mark.parametrize(
    ("files", "default"),
    [
        ({"proc/net/route": ROUTES, "proc/net/ipv6_route": ROUTES6}, "eth0"),
        ({"proc/net/route": ROUTES.splitlines()[0], "proc/net/ipv6_route": ROUTES6}, "eth6"),
        ({}, ""),
    ],
)
def test_default_route_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], default: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    found = network.collect(recorded(tmp_path, files))
    assert isinstance(found, Network)
    assert found.default == default


def test_addresses_are_listed_in_the_order_in_which_they_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def address(text: str, family: int) -> SimpleNamespace:
        return SimpleNamespace(address=text, family=family)

    monkeypatch.setattr(
        psutil,
        "net_if_addrs",
        lambda: {
            "eth0": [
                address("10.0.0.5", socket.AF_INET),
                address("fe80::1%eth0", socket.AF_INET6),
                address("02:00", 17),
            ],
            "eth1": [address("02:01", 17)],
        },
    )
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"eth0": SimpleNamespace(isup=True)})
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [(2, 1, 6, "", ("10.0.0.5", 0)), (10, 1, 6, "", ("fe80::1%eth0", 0, 0, 2))],
    )
    hosts = "# node7 was here\n127.0.0.1 localhost\n10.0.0.5 node7.cluster NODE7 # mine\n"
    machine = recorded(tmp_path, {"etc/hosts": hosts})
    assert network.collect(machine) == Network(
        Resolved("node7", ("10.0.0.5", "fe80::1")),
        (
            Interface("eth0", "unknown", up=True, addresses=("10.0.0.5", "fe80::1")),
            Interface("eth1", "unknown", up=False),
        ),
        hosts_line=3,
    )


def test_unreadable_interface_list_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(psutil, "net_if_stats", refused)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    found = network.collect(Machine())
    assert isinstance(found, Unknown)
    assert "Permission denied" in found.reason


def test_silent_name_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        over.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    found = resolve("node1", limit=0.05)
    over.set()
    assert found.hangs
    assert not found.addresses
    assert "no response" in found.failed


@pytest.mark.parametrize("name", ["a.invalid", "x" * 70, ""])
def test_unresolvable_name_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        name.encode("idna")
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = resolve(name)
    assert found.failed
    assert not found.hangs


def test_source_address_towards_this_host() -> None:
    assert source_towards("127.0.0.1") == "127.0.0.1"
    assert source_towards("no address") == ""


def test_owner_of_an_address() -> None:
    lo = Interface("lo", "loopback", up=True, addresses=("127.0.0.1",))
    eth0 = Interface("eth0", "ethernet", up=True, addresses=("10.0.0.5",))
    there = Network(Resolved("n"), (eth0, lo))
    assert there.owner_of("127.0.1.1") is lo
    assert there.owner_of("10.0.0.5") is eth0
    assert there.owner_of("10.0.0.6") is None
    assert there.owner_of("") is None


def test_format_of_address_and_port() -> None:
    assert [with_port("10.0.0.1", 6379), with_port("::", 6379), with_port("::1", 0)] == [
        "10.0.0.1:6379",
        "[::]:6379",
        "::1",
    ]
