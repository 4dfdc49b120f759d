"""How many nodes the job uses, and where its head is.

The sources are the launch files, the environment, and Ray if it runs here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.launch_values import LaunchValues, given, launch_values
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.network.network import Network, is_address, resolve, source_towards
from verl_doctor.toolkit.collectors.processes.raylets import Raylet, Raylets
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

_NODES = ("trainer.nnodes", "actor_rollout_ref.rollout.nnodes")
_ADDRESS = "ray_kwargs.ray_init.address"
_SLURM = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
# "10.0.0.1:6379", "ray://head:10001", "http://[fd00::1]:8265", and a bare host or address.
_ENDPOINT = re.compile(
    r"(?:(?P<scheme>\w+)://)?(?:\[(?P<six>[\da-fA-F:.]+)\]|(?P<host>[\w.-]+)|(?P<bare>[\da-fA-F:]+))(?::"
    r"(?P<port>\d+))?/?"
)
_NO_HOST = frozenset({"auto", "local"})
_RESOLVING = 3.0  # seconds for all names together


@dataclass(frozen=True)
class Head:
    """The machine at which the job's nodes meet, and what names it.

    `address` is "" if the address of `host` is unknown, `port` 0 if none is named. `source` is the address of
    this machine from which it is reached and `interface` the interface that has it; both "" without a route.
    `mine`: it is this machine. `raylet` is the number of the process that names it, 0 where a setting does: a
    job may have nothing to do with a raylet.
    """

    host: str
    given_by: str
    port: int = 0
    path: str = ""
    line: int = 0
    address: str = ""
    source: str = ""
    interface: str = ""
    mine: bool = False
    raylet: int = 0


@dataclass(frozen=True)
class RayHere:
    """A raylet of this user in this network, and the address of this machine that it was started with."""

    pid: int
    address: str


@dataclass(frozen=True)
class JobNodes:
    """`nodes` is how many nodes the job requests, None if not specified; `given_by` is what specifies it.

    `interface` leads to the other nodes: towards the head, or where the head itself listens, or else the
    default route's; "" if unknown. `rays` run here already.
    """

    nodes: int | None = None
    given_by: str = ""
    heads: tuple[Head, ...] = ()
    interface: str = ""
    rays: tuple[RayHere, ...] = ()

    @property
    def several(self) -> str:
        """Return why this job runs on more than one machine; "" if it does not, or if nothing shows it."""
        if self.nodes is not None:
            return f"{self.given_by}={self.nodes}" if self.nodes > 1 else ""
        away = next((head for head in self.heads if head.address and not head.mine), None)
        return f"the head {away.address} ({away.given_by}) is another machine" if away else ""


@collector(timeout=10)
def job_nodes(
    network: Network,
    variables: Variables,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
    processes: JobProcesses | Unknown,
    raylets: Raylets | Unknown,
    machine: Machine,
) -> JobNodes:
    """Combine the sources on nodes and heads, and look up this machine's routes to the heads."""
    values = launch_values(launch, configuration)
    nodes, given_by = _nodes(variables, values, launch, processes)
    here = _in_this_network(raylets, machine)
    deadline = time.monotonic() + _RESOLVING
    addresses = [*_in_configuration(values), *_in_launch(launch), *_in_shell(variables), *_of_raylets(here)]
    different = {(head.host, head.port): head for head in reversed(addresses)}
    heads = tuple(_reached(head, network, deadline) for head in reversed(different.values()))
    towards = next(
        (head.interface for head in heads if head.interface and not _is_loopback(head, network)), ""
    )
    rays = tuple(RayHere(raylet.pid, raylet.address) for raylet in here)
    return JobNodes(nodes, given_by, heads, towards or network.default, rays)


def endpoint(text: str) -> tuple[str, int] | None:
    """Parse host and port of an address such as "ray://head:10001"; port 0 if none is named.

    None if it names no host.
    """
    if is_address(text):
        return text, 0
    match = _ENDPOINT.fullmatch(text.strip())
    host = match and (match["six"] or match["host"] or match["bare"])
    if not match or not host or host in _NO_HOST:
        return None
    return host, int(match["port"] or 0)


def option(words: Sequence[Word], name: str) -> Word | None:
    """Return the value of an option, written `--name value` or `--name=value`."""
    for place, word in enumerate(words):
        if word.text == name and place + 1 < len(words):
            return words[place + 1]
        if word.text is not None and word.text.startswith(f"{name}="):
            return replace(word, text=word.text.partition("=")[2])
    return None


def _nodes(
    variables: Variables, values: LaunchValues, launch: Launch | Unknown, processes: JobProcesses | Unknown
) -> tuple[int | None, str]:
    """Return the largest number of nodes in the configuration.

    If it is unknown, return what Slurm allocated or is requested to allocate.

    A trainer without Ray runs on as many as its launcher starts, and does not read the settings.
    """
    launched = processes if isinstance(processes, JobProcesses) and processes.counts_nodes else None
    if launched and launched.nodes is not None:
        return launched.nodes, f"{launched.launcher} --nnodes"
    keys = () if launched else _NODES
    requested = [given_value for key in keys if (given_value := given(values, key)) is not None]
    numbers = [
        (node_value.value, node_value.key) for node_value in requested if isinstance(node_value.value, int)
    ]
    if numbers and all(node_value.known for node_value in requested):
        return max(numbers)
    for name in _SLURM:
        if variables.get(name).isdigit():
            return int(variables.get(name)), name
    slurm_nodes = None if isinstance(launch, Unknown) else launch.nodes
    return slurm_nodes, "#SBATCH --nodes" if slurm_nodes else ""


def _in_configuration(values: LaunchValues) -> Iterator[Head]:
    address = given(values, _ADDRESS)
    if address is not None and (found := endpoint(address.text)):
        yield Head(found[0], _ADDRESS, found[1], address.path, address.line)


def _in_launch(launch: Launch | Unknown) -> Iterator[Head]:
    if isinstance(launch, Unknown):
        return
    for words in launch.ray_starts:
        address = option(words, "--address")
        if address is not None and (found := endpoint(address.text or "")):
            yield Head(found[0], "ray start --address", found[1], address.path, address.line)
    for setting in launch.settings:
        if setting.name in ("RAY_ADDRESS", "MASTER_ADDR") and not setting.removed:
            found = endpoint(setting.value or "")
            if found:
                yield Head(found[0], setting.name, found[1], setting.path, setting.line)


def _in_shell(variables: Variables) -> Iterator[Head]:
    for name in ("RAY_ADDRESS", "MASTER_ADDR"):
        if found := endpoint(variables.get(name)):
            yield Head(found[0], f"{name} of this shell", found[1])


def _in_this_network(raylets: Raylets | Unknown, machine: Machine) -> list[Raylet]:
    """Return raylets in the same network namespace: another container here has other interfaces."""

    def namespace(process: str) -> Path | None:
        try:
            return machine.at(f"/proc/{process}/ns/net").readlink()
        except OSError:
            return None

    own = namespace("self")
    running = () if isinstance(raylets, Unknown) else raylets.running
    return [raylet for raylet in running if namespace(str(raylet.pid)) in (own, None)]


def _of_raylets(here: Iterable[Raylet]) -> Iterator[Head]:
    """Yield the heads of the Rays that run here."""
    for raylet in here:
        if found := endpoint(raylet.cluster):
            yield Head(found[0], f"raylet {raylet.pid}", found[1], raylet=raylet.pid)


def _reached(head: Head, network: Network, deadline: float) -> Head:
    """Add the head's address and the route to it."""
    address = head.host
    if not is_address(address):
        left = deadline - time.monotonic()
        found = resolve(address, left).addresses if left > 0 else ()
        if not found:
            return head
        address = found[0]
    owner = network.owner_of(address)
    source = address if owner else source_towards(address)
    by = owner or network.owner_of(source)
    return replace(
        head, address=address, source=source, interface=by.name if by else "", mine=owner is not None
    )


def _is_loopback(head: Head, network: Network) -> bool:
    interface = network.interface(head.interface)
    return interface is not None and interface.kind == "loopback"
