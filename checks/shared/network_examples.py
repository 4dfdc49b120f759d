"""Machines for the examples of the NET1xx rules."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.connections.network_variables import NetworkVariables, VariableValue
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.network.network import Interface, Network, Resolved
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import Head, JobNodes
from verl_doctor.toolkit.facts import Absent

SCRIPT = "/home/me/run.sh"
LO = Interface("lo", "loopback", up=True, addresses=("127.0.0.1", "::1"))
ETH0 = Interface("eth0", "ethernet", up=True, addresses=("10.0.0.5", "fe80::5"))
DOCKER0 = Interface("docker0", "bridge", up=True, addresses=("172.17.0.1",))
BRIDGE = Interface("br-3f2a", "bridge", up=True, addresses=("172.18.0.1",))
UNSET_IB = Interface("ibs1", "InfiniBand", up=True, addresses=("fe80::11",))
VETH = Interface("veth9", "veth", up=True, addresses=("fe80::9",))

GPUS = Resources((Gpu("NVIDIA H200", 143771),), 64, None)
NO_GPUS = Resources(None, 2, None)
NO_RDMA = (Rdma, Absent("no adapter"))
ONE = JobNodes(1, "trainer.nnodes", interface="eth0")
TWO = JobNodes(2, "trainer.nnodes", (Head("10.0.0.9", "RAY_ADDRESS", 6379, "", 0, "10.0.0.9", "10.0.0.5", "eth0"),), "eth0")  # fmt: skip


def adapters(
    *states: str,
    link: str = "InfiniBand",
    gids: tuple[tuple[int, str], ...] = ((0, "IB/RoCE v1"),),
    devices: int | None = None,
    closed: int = 0,
) -> Rdma:
    """A machine with the adapters mlx5_0, mlx5_1..., whose ports are in these states ("INIT", "DOWN"...)."""
    ports = tuple(
        Port(
            f"mlx5_{number}",
            1,
            state,
            "Polling" if state == "DOWN" else "LinkUp",
            link,
            "400 Gb/sec (4X NDR)",
            gids,
        )
        for number, state in enumerate(states)
    )
    files = tuple(f"/dev/infiniband/uverbs{n}" for n in range(len(states) if devices is None else devices))
    return Rdma(ports, files, files[:closed])


def head_here() -> JobNodes:
    """Two nodes; this one is the head."""
    return JobNodes(2, "trainer.nnodes", (Head("10.0.0.5", "RAY_ADDRESS", 6379, "", 0, "10.0.0.5", "10.0.0.5", "eth0", mine=True),), "eth0")  # fmt: skip


def named(*addresses: str, failed: str = "", hangs: bool = False, line: int = 0) -> Network:
    """A machine `node1` with loopback, eth0 and docker0, and a name that resolves to these addresses."""
    return Network(Resolved("node1", addresses, failed, hangs), (LO, ETH0, DOCKER0), "eth0", line)


def machine(*interfaces: Interface, default: str = "eth0") -> Network:
    """A machine with these interfaces and a name that resolves to eth0's address."""
    return Network(Resolved("node1", ("10.0.0.5",)), interfaces, default)


def shell(**values: str) -> tuple[NetworkVariables]:
    """These variables in the shell, and therefore in the workers."""
    return (NetworkVariables(tuple(VariableValue(name, value) for name, value in values.items())),)


def script(name: str, value: str, *, workers: bool = False) -> tuple[NetworkVariables]:
    """A launch script whose third line sets one variable."""
    return (NetworkVariables((VariableValue(name, value, SCRIPT, SCRIPT, 3, workers),)),)


ACTIVE = adapters("ACTIVE")
PUBLIC = Network(
    Resolved("node1", ("8.8.4.4",)),
    (
        LO,
        Interface("eth0", "ethernet", up=True, addresses=("10.0.0.5",)),
        Interface("eth1", "ethernet", up=True, addresses=("8.8.4.4",)),
    ),
    "eth1",
)
