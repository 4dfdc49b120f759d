"""NET114: a port that the job is set to use is already taken."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_doctor.checks.shared.network_examples import ONE, TWO, head_here
from verl_doctor.toolkit.collectors.connections.ports import Listener, Ports, RequestedPorts
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.network.network import with_port
from verl_doctor.toolkit.collectors.ray.addresses import Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Severity, Subject, check

_SCRIPT = "/home/me/run.sh"
_GCS = RequestedPorts(first=6379, last=6379, what="ray start --port", path=_SCRIPT, line=4)
_DASHBOARD = RequestedPorts(
    first=8265, last=8265, what="ray start --dashboard-port", path=_SCRIPT, line=4, needed=False
)
_MASTER = RequestedPorts(first=29500, last=29500, what="MASTER_PORT of this shell", needed=False)
_WORKERS = RequestedPorts(
    first=10002, last=19999, what="the ports of Ray's workers", path=_SCRIPT, line=4, needed=False
)
_HEAD = Place(
    source="ray start --head", given_by="ray start --head", text="10.0.0.5:6379", host="10.0.0.5", port=6379
)
_OF_HEAD = _GCS.what
_RAY = re.compile(r"gcs_server|raylet|ray\b.*")  # processes that `ray stop` ends


def _examples() -> list[Example]:
    return [
        Example(
            "free",
            (
                Ports(
                    listeners=(Listener(port=22, address="10.0.0.5", pid=1, name="sshd"),),
                    wanted=(_GCS, _DASHBOARD),
                ),
                head_here(),
            ),
        ),
        Example(
            "the job does not use the port",
            (Ports((Listener(port=6379, address="127.0.0.1", pid=8, name="redis-server"),)), ONE),
        ),
        Example(
            "the head runs on another machine",
            (
                Ports(
                    listeners=(Listener(port=6379, address="10.0.0.5", pid=8, name="redis-server"),),
                    wanted=(_GCS,),
                ),
                TWO,
            ),
        ),
        Example(
            "one of many worker ports",
            (
                Ports(
                    listeners=(Listener(port=10443, address="10.0.0.5", pid=8, name="x"),), wanted=(_WORKERS,)
                ),
                ONE,
            ),
        ),
        Example(
            "the script stops that process first",
            (
                Ports(
                    listeners=(Listener(port=6379, address="10.0.0.5", pid=8, name="gcs_server", mine=True),),
                    wanted=(_GCS,),
                ),
                ONE,
                Launch((), stops_ray=True),
            ),
        ),
        Example(
            "verl's Ray trainers use a free port instead",
            (
                Ports(listeners=(Listener(port=29500, address="10.0.0.5"),), wanted=(_MASTER,)),
                ONE,
                Launch((), command=Command(module="verl.trainer.main_ppo", words=(), path=_SCRIPT, line=5)),
            ),
        ),
        Example(
            "redis is listening on it",
            (
                Ports(
                    listeners=(
                        Listener(port=6379, address="127.0.0.1", pid=8, name="redis-server", mine=True),
                    ),
                    wanted=(_GCS,),
                ),
                ONE,
            ),
            "redis-server (pid 8) is listening on it",
        ),
        Example(
            "another Ray, which RAY110 reports",
            (
                Ports(
                    listeners=(Listener(port=6379, address="10.0.0.5", pid=8, name="gcs_server", mine=True),),
                    wanted=(_GCS,),
                ),
                ONE,
                RayAddresses((_HEAD,)),
                RayClusters((RayCluster("10.0.0.5:6379", cluster="ab12"),)),
            ),
        ),
        Example(
            "another user's process",
            (Ports(listeners=(Listener(port=6379, address="10.0.0.5"),), wanted=(_GCS,)), ONE),
            "a process of another user is listening on it",
        ),
        Example(
            "Ray runs already",
            (
                Ports(
                    listeners=(Listener(port=6379, address="10.0.0.5", pid=8, name="gcs_server", mine=True),),
                    wanted=(_GCS,),
                ),
                ONE,
            ),
            "a Ray of yours is already running here",
        ),
        Example(
            "left over",
            (
                Ports(
                    listeners=(
                        Listener(
                            port=29500,
                            address="10.0.0.5",
                            pid=8,
                            name="VLLM::EngineCore",
                            mine=True,
                            orphan=True,
                        ),
                    ),
                    wanted=(_MASTER,),
                ),
                ONE,
            ),
            "left over from a finished job",
        ),
    ]


@check("NET114", phase="ray", examples=_examples)
def port_taken(
    ports: Ports,
    nodes: JobNodes,
    launch: Launch | Unknown,
    addresses: RayAddresses | Unknown,
    clusters: RayClusters | Unknown,
) -> Iterator[Finding]:
    """A port that the job is set to use is already taken.

    ## Why it matters

    When its port is taken, `ray start --head` stops or joins whatever runs there; a trainer stops with
    `EADDRINUSE`. On a shared machine, and in containers on the host's network, another user's Ray uses the
    same default ports.

    ## How to fix

    Stop leftovers of your own (`ray stop` stops all your Rays on this machine), or choose another port: `ray
    start --port`, MASTER_PORT.
    """
    elsewhere = any(head.address and not head.mine for head in nodes.heads)
    for wanted in ports.wanted:
        listener = ports.on(wanted.first) if wanted.first == wanted.last else None
        if listener is None or (elsewhere and wanted.what.startswith("ray start")):
            continue
        if wanted.what == _OF_HEAD and _is_ray(wanted.first, clusters, addresses):
            continue
        if wanted.what.startswith("MASTER_PORT") and _through_ray(launch):
            continue
        if (
            listener.mine
            and _RAY.fullmatch(listener.name)
            and not isinstance(launch, Unknown)
            and launch.stops_ray
        ):
            continue
        yield Finding(
            f"{wanted.what} needs port {wanted.first}, but {_who(listener)}",
            Evidence(
                f"{with_port(listener.address, listener.port)}, {_name(listener)}",
                "a free port",
                "the kernel's list of sockets",
            ),
            subject=Subject("port", str(wanted.first), wanted.what),
            location=Location(wanted.path, wanted.line) if wanted.path else None,
            remedy=_remedy(listener, wanted),
            severity=_severity(listener, wanted),
        )


def _is_ray(port: int, clusters: RayClusters | Unknown, addresses: RayAddresses | Unknown) -> bool:
    """Whether a Ray already answers at the address where the script starts its head."""
    head = None if isinstance(addresses, Unknown) else addresses.head
    if head is None or head.port != port or isinstance(clusters, Unknown):
        return False
    ray = clusters.at(head.address)
    return ray is not None and bool(ray.cluster or ray.token)


def _through_ray(launch: Launch | Unknown) -> bool:
    """Whether verl itself gives each group of workers a free port.

    Its Ray trainers do so (single_controller/ray/base.py).
    """
    return (
        not isinstance(launch, Unknown) and launch.command is not None and ".main_" in launch.command.module
    )


def _name(listener: Listener) -> str:
    return (
        f"{listener.name or 'a process'} (pid {listener.pid})"
        if listener.pid
        else "a process of another user"
    )


def _who(listener: Listener) -> str:
    if listener.name == "gcs_server" and listener.mine:
        return f"a Ray of yours is already running here, {_name(listener)}"
    left = (
        ", left over from a finished job,"
        if listener.orphan and listener.name.startswith(("VLLM", "sglang"))
        else ""
    )
    return f"{_name(listener)}{left} is listening on it"


def _remedy(listener: Listener, wanted: RequestedPorts) -> str:
    other = f"use another port for {wanted.what.removesuffix(' of this shell')}"
    if listener.name == "gcs_server" and listener.mine:
        return f"run ray stop if no job of yours needs it, or remove ray start; or {other}"
    return f"end it if it is left over: kill {listener.pid}; or {other}" if listener.mine else other


def _severity(listener: Listener, wanted: RequestedPorts) -> Severity:
    """The severity.

    The user may intend to join their own Ray, or to stop it first; the dashboard is optional.
    """
    if wanted.what.startswith("ray start") and not wanted.needed:
        return "info"
    return "error" if wanted.needed and listener.name != "gcs_server" else "warning"
