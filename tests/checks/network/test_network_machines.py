"""All rules about the network on whole machines: healthy ones have no findings, alone or with a second node.

The rented container was recorded; the others are built from the output of such machines.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.checks.shared.network_examples import GPUS, NO_GPUS
from verl_doctor.toolkit.collectors.connections.heads_reached import HeadsReached, Knock
from verl_doctor.toolkit.collectors.connections.network_variables import NetworkVariables, VariableValue
from verl_doctor.toolkit.collectors.connections.ports import Listener, Ports, RequestedPorts
from verl_doctor.toolkit.collectors.connections.proxied import Client, Proxied
from verl_doctor.toolkit.collectors.host.clock import Clock
from verl_doctor.toolkit.collectors.host.limits import Limit
from verl_doctor.toolkit.collectors.network.network import Interface, Network, Resolved
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import Head, JobNodes
from verl_doctor.toolkit.engine import factsfile, registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.rule import Finding

KNOWN = registry.load()
RULES = [check for check in KNOWN.checks if check.family == "NET" and check.code < "NET130"]
LO = Interface("lo", "loopback", up=True, addresses=("127.0.0.1", "::1"))
NO_RDMA = Absent("this machine shows no InfiniBand or RoCE adapter")
SCRIPT_NEEDS = (RequestedPorts(6379, 6379, "ray start --port", "/home/me/run.sh", 4),)


def hgx() -> list[Any]:
    """Eight GPUs, eight rails of InfiniBand with an address each, two bonded Ethernet ports, and docker."""
    rails = [Interface(f"ibs{n}", "InfiniBand", up=True, addresses=(f"10.9.{n}.5",)) for n in range(8)]
    ports = tuple(
        Port(f"mlx5_{n}", 1, "ACTIVE", "LinkUp", "InfiniBand", "400 Gb/sec (4X NDR)", ((0, "IB/RoCE v1"),))
        for n in range(8)
    )
    ethernet = tuple(
        Port(f"mlx5_bond_{n}", 1, state, "LinkUp", "Ethernet", "100 Gb/sec (4X EDR)", ((3, "RoCE v2"),))
        for n, state in enumerate(("ACTIVE", "DOWN"))
    )
    docker = Interface("docker0", "bridge", up=False, addresses=("172.17.0.1",))
    bond = Interface("bond0", "bond", up=True, addresses=("10.0.0.5",))
    return [
        Network(Resolved("node1", ("10.0.0.5",)), (LO, bond, *rails, docker), "bond0", 2),
        Rdma((*ports, *ethernet), tuple(f"/dev/infiniband/uverbs{n}" for n in range(10)), ()),
        GPUS,
        an_h200_node(healthy(), healthy(7)),
    ]  # fmt: skip


def rented() -> list[Any]:
    """A container with two H200s, as it was found: its name leads to loopback, and one port is open."""
    eth0 = Interface("eth0", "ethernet", up=True, addresses=("192.0.2.2",))
    ifb = Interface("ifb0", "virtual", up=False)
    return [Network(Resolved("vm", ("127.0.0.1",)), (LO, eth0, ifb), "eth0", 1), NO_RDMA, GPUS]


def cloud() -> list[Any]:
    """A cloud machine whose docker bridge is in use."""
    eth0 = Interface("eth0", "ethernet", up=True, addresses=("10.128.0.7",))
    docker = Interface("docker0", "bridge", up=True, addresses=("172.17.0.1",))
    return [Network(Resolved("vm-7", ("10.128.0.7",)), (LO, eth0, docker), "eth0"), NO_RDMA, GPUS]


def pod() -> list[Any]:
    """A pod in Kubernetes: one end of a pair is all that it has."""
    eth0 = Interface("eth0", "veth", up=True, addresses=("10.244.3.9",))
    return [Network(Resolved("trainer-0", ("10.244.3.9",)), (LO, eth0), "eth0", 7), NO_RDMA, GPUS]


def head() -> list[Any]:
    """A head without a GPU, that other nodes reach over its second interface."""
    wide = Interface("eth0", "ethernet", up=True, addresses=("203.0.113.9",))
    inner = Interface("eth1", "ethernet", up=True, addresses=("10.0.0.1",))
    return [Network(Resolved("head", ("10.0.0.1",)), (LO, wide, inner), "eth0"), NO_RDMA, NO_GPUS]


def laptop() -> list[Any]:
    """A wireless interface, a tunnel to the office, docker and a name that Debian's installer gave."""
    wireless = Interface("wlp3s0", "wireless", up=True, addresses=("192.168.1.20", "fe80::20"))
    tunnel = Interface("tun0", "tunnel", up=True, addresses=("10.8.0.3",))
    docker = Interface("docker0", "bridge", up=True, addresses=("172.17.0.1",))
    there = (LO, wireless, docker, tunnel)
    return [Network(Resolved("thinkpad", ("127.0.1.1",)), there, "wlp3s0", 2), NO_RDMA, NO_GPUS]


MACHINES = [hgx, rented, cloud, pod, head, laptop]


def spread(machine: list[Any]) -> JobNodes:
    """Two nodes, the head elsewhere, reached over the interface of this machine's default route."""
    interface = machine[0].default
    there = Head("10.200.0.9", "RAY_ADDRESS of this shell", 6379, address="10.200.0.9", interface=interface)
    return JobNodes(2, "trainer.nnodes", (there,), interface)


def judged(machine: list[Any], nodes: JobNodes, *others: Any, **variables: str) -> list[tuple[str, Finding]]:
    """Findings of every rule after a round trip of the facts through a file."""
    listening = Ports((Listener(22, "10.0.0.5"), Listener(2024, "10.0.0.5")), SCRIPT_NEEDS, (32768, 60999))
    facts: dict[type, Any] = {
        JobNodes: nodes,
        Rdma: NO_RDMA,
        Ports: listening,
        Clock: Clock(synchronised=True, error=0.02, now=1.8e9, monotonic=9.0),
        NetworkVariables: NetworkVariables(tuple(VariableValue(*pair) for pair in variables.items())),
        Proxied: Absent("no variable names a proxy"),
        HeadsReached: Absent("no address of a head is given with a port"),
    }
    for each in (*machine, *others):
        facts[Rdma if isinstance(each, Absent) else type(each)] = each
    selection = Selection(costs=frozenset({"instant", "live"}))
    results = judge(RULES, Collection([], again(facts)), selection, today=date(2026, 11, 21))
    assert [result.code for result in results if result.status == "error"] == []
    return [(result.code, finding) for result in results for finding in result.findings]


def again(facts: dict[type, Any]) -> dict[type, Any]:
    """The same facts after a trip through JSON."""
    by_name = {part.name: part for part in KNOWN.collectors}
    document = json.loads(factsfile.dump(facts, KNOWN.collectors, "1"))
    return {
        by_name[name].fact: factsfile._read(Path("facts"), by_name[name], entry)
        for name, entry in document["facts"].items()
    }


def codes(found: list[tuple[str, Finding]]) -> list[str]:
    return [code for code, _ in found]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_healthy_single_machine_has_no_findings(machine: Any) -> None:
    assert judged(machine(), JobNodes(1, "trainer.nnodes", (), machine()[0].default)) == []
    assert judged(machine(), JobNodes(interface=machine()[0].default)) == []


@pytest.mark.parametrize("machine", [hgx, cloud, pod, head], ids=lambda machine: machine.__name__)
def test_healthy_machine_among_several_has_no_findings(machine: Any) -> None:
    assert judged(machine(), spread(machine())) == []


def test_rented_container_as_one_of_two_nodes() -> None:
    assert codes(judged(rented(), spread(rented()))) == ["NET101"]


def test_laptop_as_one_of_two_nodes() -> None:
    """NCCL would also take the tunnel; docker's bridge it passes over by itself."""
    found = judged(laptop(), spread(laptop()))
    assert codes(found) == ["NET101", "NET105"]
    assert "also sends its data over tun0" in found[1][1].message


def test_hgx_container_without_devices_and_limits() -> None:
    network, rdma, gpus, _ = hgx()
    shut = replace(rdma, devices=())
    dockers = an_h200_node(healthy(locked=Limit(65536, 65536)))
    found = judged(
        [network, shut, gpus, dockers], spread(hgx()), NCCL_IB_HCA="=mlx5_0,mlx5_9", NCCL_IB_DISABLE="1"
    )
    assert codes(found) == ["NET108", "NET109", "NET110", "NET111"]


def test_every_fact_survives_a_round_trip() -> None:
    knock = Knock(
        Head("10.0.0.9", "RAY_ADDRESS", 6379, address="10.0.0.9"), "refused", "Connection refused", 0.1
    )
    proxied = Proxied(
        ("10.0.0.5",), ("http_proxy",), {"no_proxy": "localhost"}, (Client("httpx", ("10.0.0.5",)),)
    )
    taken = Ports(
        (Listener(6379, "10.0.0.5", 8, "redis-server", mine=True),),
        SCRIPT_NEEDS,
        (1024, 65535),
        ((8000, 8010),),
    )
    found = judged(
        cloud(), spread(cloud()), HeadsReached((knock,)), proxied, replace(taken, wanted=(*SCRIPT_NEEDS,))
    )
    assert codes(found) == ["NET113", "NET115", "NET116"]
