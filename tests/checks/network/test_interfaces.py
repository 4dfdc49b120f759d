"""Interfaces chosen by NCCL, by the rules of its own search."""

from __future__ import annotations

import pytest

from verl_doctor.checks.network._interfaces import gloo_names, nccl_chooses, nccl_takes, selection
from verl_doctor.toolkit.collectors.network.network import Interface, Kind


def up(name: str, *addresses: str, kind: Kind = "ethernet") -> Interface:
    return Interface(name, kind, up=True, addresses=addresses)


LO = up("lo", "127.0.0.1", "::1", kind="loopback")
DOCKER = up("docker0", "172.17.0.1", kind="bridge")
VIRBR = up("virbr0", "192.168.122.1", kind="bridge")
ETH1 = up("eth1", "10.1.0.1")
ETH10 = up("eth10", "10.10.0.1")
SIX = up("ens3", "fd00::3")
DOWN = Interface("eth0", "ethernet", up=False, addresses=("10.0.0.1",))


def names(*there: Interface, wanted: str | None = None) -> list[str]:
    taken = nccl_chooses(there) if wanted is None else nccl_takes(there, selection(wanted))
    return [each.name for each, _ in taken]


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ((LO, DOCKER, VIRBR, SIX, ETH1, DOWN), ["eth1", "ens3"]),
        ((LO, DOCKER, VIRBR), ["docker0"]),
        ((LO, VIRBR), ["lo"]),
        ((VIRBR, up("lo", "::1", kind="loopback")), ["virbr0"]),
        ((LO, ETH1, up("ib0", "10.9.0.1"), up("ibp1", "fe80::1")), ["ib0", "ibp1"]),
        ((DOWN,), []),
    ],
)
def test_default_interface_choice(there: tuple[Interface, ...], taken: list[str]) -> None:
    assert names(*there) == taken


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("^eth1", ["docker0", "lo"]),
        ("^=eth1", ["docker0", "lo", "eth10"]),
        ("=eth10,docker0", ["docker0", "eth10"]),
        ("eth0", []),
    ],
)
def test_nccl_interface_syntax(wanted: str, taken: list[str]) -> None:
    assert names(DOCKER, LO, ETH1, ETH10, DOWN, wanted=wanted) == taken


def test_number_of_interfaces_is_limited_as_in_nccl() -> None:
    assert len(names(*(up(f"eth{n}", f"10.0.0.{n}") for n in range(1, 30)), wanted="eth")) == 16


def test_torch_splits_at_commas_and_ignores_single_letters() -> None:
    assert gloo_names("eth0,eth1,") == ["eth0", "eth1"]
    assert gloo_names("x") == gloo_names("") == []
