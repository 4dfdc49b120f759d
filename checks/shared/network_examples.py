"""Machines for the examples of the NET1xx rules."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.connections.network_variables import NetworkVariables, VariableValue
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.network.network import Interface, Network, Resolved
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import Head, JobNodes
from verl_doctor.toolkit.facts import Absent

SCRIPT = "/home/me/run.sh"
LO = Interface(name="lo", kind="loopback", up=True, addresses=("127.0.0.1", "::1"))
ETH0 = Interface(name="eth0", kind="ethernet", up=True, addresses=("10.0.0.5", "fe80::5"))
DOCKER0 = Interface(name="docker0", kind="bridge", up=True, addresses=("172.17.0.1",))
BRIDGE = Interface(name="br-3f2a", kind="bridge", up=True, addresses=("172.18.0.1",))
UNSET_IB = Interface(name="ibs1", kind="InfiniBand", up=True, addresses=("fe80::11",))
VETH = Interface(name="veth9", kind="veth", up=True, addresses=("fe80::9",))

GPUS = Resources(gpus=(Gpu(name="NVIDIA H200", memory=143771),), cpus=64, memory=None)
NO_GPUS = Resources(gpus=None, cpus=2, memory=None)
NO_RDMA = (Rdma, Absent("no adapter"))
ONE = JobNodes(nodes=1, given_by="trainer.nnodes", interface="eth0")
TWO = JobNodes(
    nodes=2,
    given_by="trainer.nnodes",
    heads=(
        Head(
            host="10.0.0.9",
            given_by="RAY_ADDRESS",
            port=6379,
            path="",
            line=0,
            address="10.0.0.9",
            source="10.0.0.5",
            interface="eth0",
        ),
    ),
    interface="eth0",
)


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
            adapter=f"mlx5_{number}",
            number=1,
            state=state,
            physical="Polling" if state == "DOWN" else "LinkUp",
            link=link,
            rate="400 Gb/sec (4X NDR)",
            gids=gids,
        )
        for number, state in enumerate(states)
    )
    files = tuple(f"/dev/infiniband/uverbs{n}" for n in range(len(states) if devices is None else devices))
    return Rdma(ports=ports, devices=files, closed=files[:closed])


def head_here() -> JobNodes:
    """Two nodes; this one is the head."""
    return JobNodes(
        nodes=2,
        given_by="trainer.nnodes",
        heads=(
            Head(
                host="10.0.0.5",
                given_by="RAY_ADDRESS",
                port=6379,
                path="",
                line=0,
                address="10.0.0.5",
                source="10.0.0.5",
                interface="eth0",
                mine=True,
            ),
        ),
        interface="eth0",
    )


def named(*addresses: str, failed: str = "", hangs: bool = False, line: int = 0) -> Network:
    """A machine `node1` with loopback, eth0 and docker0, and a name that resolves to these addresses."""
    return Network(
        host=Resolved(name="node1", addresses=addresses, failed=failed, hangs=hangs),
        interfaces=(LO, ETH0, DOCKER0),
        default="eth0",
        hosts_line=line,
    )


def machine(*interfaces: Interface, default: str = "eth0") -> Network:
    """A machine with these interfaces and a name that resolves to eth0's address."""
    return Network(
        host=Resolved(name="node1", addresses=("10.0.0.5",)), interfaces=interfaces, default=default
    )


def shell(**values: str) -> tuple[NetworkVariables]:
    """These variables in the shell, and therefore in the workers."""
    return (NetworkVariables(tuple(VariableValue(name=name, value=value) for name, value in values.items())),)


def script(name: str, value: str, *, workers: bool = False) -> tuple[NetworkVariables]:
    """A launch script whose third line sets one variable."""
    return (
        NetworkVariables(
            (VariableValue(name=name, value=value, where=SCRIPT, path=SCRIPT, line=3, everywhere=workers),)
        ),
    )


ACTIVE = adapters("ACTIVE")
PUBLIC = Network(
    host=Resolved(name="node1", addresses=("8.8.4.4",)),
    interfaces=(
        LO,
        Interface(name="eth0", kind="ethernet", up=True, addresses=("10.0.0.5",)),
        Interface(name="eth1", kind="ethernet", up=True, addresses=("8.8.4.4",)),
    ),
    default="eth1",
)
