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
_GCS = RequestedPorts(6379, 6379, "ray start --port", _SCRIPT, 4)
_DASHBOARD = RequestedPorts(8265, 8265, "ray start --dashboard-port", _SCRIPT, 4, needed=False)
_MASTER = RequestedPorts(29500, 29500, "MASTER_PORT of this shell", needed=False)
_WORKERS = RequestedPorts(10002, 19999, "the ports of Ray's workers", _SCRIPT, 4, needed=False)
_HEAD = Place("ray start --head", "ray start --head", "10.0.0.5:6379", "10.0.0.5", 6379)
_OF_HEAD = _GCS.what
_RAY = re.compile(r"gcs_server|raylet|ray\b.*")  # processes that `ray stop` ends


@check(
    "NET114",
    phase="ray",
    examples=lambda: [
        Example("free", (Ports((Listener(22, "10.0.0.5", 1, "sshd"),), (_GCS, _DASHBOARD)), head_here())),
        Example("the job does not use the port", (Ports((Listener(6379, "127.0.0.1", 8, "redis-server"),)), ONE)),
        Example("the head runs on another machine", (Ports((Listener(6379, "10.0.0.5", 8, "redis-server"),), (_GCS,)), TWO)),
        Example("one of many worker ports", (Ports((Listener(10443, "10.0.0.5", 8, "x"),), (_WORKERS,)), ONE)),
        Example("the script stops that process first", (Ports((Listener(6379, "10.0.0.5", 8, "gcs_server", mine=True),), (_GCS,)), ONE, Launch((), stops_ray=True))),
        Example("verl's Ray trainers use a free port instead", (Ports((Listener(29500, "10.0.0.5"),), (_MASTER,)), ONE, Launch((), command=Command("verl.trainer.main_ppo", (), _SCRIPT, 5)))),
        Example("redis is listening on it", (Ports((Listener(6379, "127.0.0.1", 8, "redis-server", mine=True),), (_GCS,)), ONE), "redis-server (pid 8) is listening on it"),
        Example("another Ray, which RAY110 reports", (Ports((Listener(6379, "10.0.0.5", 8, "gcs_server", mine=True),), (_GCS,)), ONE, RayAddresses((_HEAD,)), RayClusters((RayCluster("10.0.0.5:6379", cluster="ab12"),)))),
        Example("another user's process", (Ports((Listener(6379, "10.0.0.5"),), (_GCS,)), ONE), "a process of another user is listening on it"),
        Example("Ray runs already", (Ports((Listener(6379, "10.0.0.5", 8, "gcs_server", mine=True),), (_GCS,)), ONE), "a Ray of yours is already running here"),
        Example("left over", (Ports((Listener(29500, "10.0.0.5", 8, "VLLM::EngineCore", mine=True, orphan=True),), (_MASTER,)), ONE), "left over from a finished job"),
    ],
)  # fmt: skip
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
    """Whether verl itself gives each group of workers a free port, as its Ray trainers do (single_controller/ray/base.py)."""
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
    """The severity. The user may intend to join their own Ray, or to stop it first; the dashboard is optional."""
    if wanted.what.startswith("ray start") and not wanted.needed:
        return "info"
    return "error" if wanted.needed and listener.name != "gcs_server" else "warning"
