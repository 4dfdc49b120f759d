"""TCP ports: those in use by listeners, the kernel's ephemeral range, and those that the job needs."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.processes.processes import role_of
from verl_doctor.toolkit.collectors.ray.job_nodes import option
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

# The defaults of `ray start` for options that are not given (ray/scripts/scripts.py); 0 means any free port.
_RAY_HEAD = {"--port": 6379, "--dashboard-port": 8265, "--ray-client-server-port": 10001}
_RAY_OTHERS = (
    "--object-manager-port",
    "--node-manager-port",
    "--gcs-server-port",
    "--runtime-env-agent-port",
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--metrics-export-port",
)
_RAY_DISPENSABLE = frozenset({"--dashboard-port", "--ray-client-server-port"})
_FLAGS = frozenset({"--head", "--block", "--disable-usage-stats", "--no-monitor", "--no-redirect-output"})
_RAY_WORKERS = (10002, 19999)
_ANY_WORDS = re.compile(r"\$(\w+|\{.*\}|\(.*\)|[@*])")
_PYTHON = re.compile(r"python[\d.]*|pt_main_thread|vllm|ray")


@dataclass(frozen=True)
class Listener:
    """A process that listens on a TCP port.

    `pid` is 0 if the kernel does not reveal it: the process is another user's.

    `name` is the program's name, or the title that it set. `orphan`: its parent has ended.
    """

    port: int
    address: str
    pid: int = 0
    name: str = ""
    mine: bool = False
    orphan: bool = False


@dataclass(frozen=True)
class RequestedPorts:
    """Ports that the job is configured to take, from `first` to `last`.

    `needed`: the job does not start without them.
    """

    first: int
    last: int
    what: str
    path: str = ""
    line: int = 0
    needed: bool = True


@dataclass(frozen=True)
class Ports:
    """The state of this machine's ports.

    `ephemeral` is the range from which the kernel takes ports for outgoing connections, without those that
    are `reserved`.
    """

    listeners: tuple[Listener, ...] = ()
    wanted: tuple[RequestedPorts, ...] = ()
    ephemeral: tuple[int, int] | None = None
    reserved: tuple[tuple[int, int], ...] = ()

    def on(self, port: int) -> Listener | None:
        """Return the listener on a port."""
        return next((each for each in self.listeners if each.port == port), None)


@collector()
def ports(variables: Variables, launch: Launch | Unknown, machine: Machine) -> Ports | Unknown:
    """Query the kernel for listening sockets, and the launch files for fixed ports."""
    if sys.platform != "linux":
        return Absent("ports are checked on Linux only")
    listeners = _listeners()
    if isinstance(listeners, Unknown):
        return listeners
    given = (machine.read("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return Ports(
        listeners,
        tuple(_wanted(variables, launch)),
        (int(given[0]), int(given[1])) if len(given) == 2 else None,
        tuple(_ranges(machine.read("/proc/sys/net/ipv4/ip_local_reserved_ports") or "")),
    )


def _listeners() -> tuple[Listener, ...] | Unknown:
    import psutil  # noqa: PLC0415 - ten milliseconds

    try:
        sockets = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError) as error:
        return Unknown(f"the kernel does not list this machine's sockets: {error}")
    found: dict[tuple[int, int], Listener] = {}
    who = functools.cache(_who)  # a Ray worker has several ports
    for socket in sockets:
        if socket.status == psutil.CONN_LISTEN and socket.laddr:
            address, port = socket.laddr
            pid = socket.pid or 0
            found.setdefault((port, pid), Listener(port, str(address), pid, *who(pid)))
    return tuple(sorted(found.values(), key=lambda each: (each.port, each.pid)))


def _who(pid: int) -> tuple[str, bool, bool]:
    """`name`, `mine` and `orphan` of a process, as far as this user may see them."""
    import psutil  # noqa: PLC0415

    if not pid:
        return "", False, False
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            words = process.cmdline()
            name = words[0].split(" ")[0] if role_of(" ".join(words)) else process.name()
            mine = process.uids().effective == os.geteuid()
            return name.rpartition("/")[2], mine, _is_orphan(process)
    except (psutil.Error, OSError):
        return "", False, False


def _is_orphan(process: Any) -> bool:
    """Return whether the init process or a service manager adopted the process rather than started it."""
    parent = process.parent()
    if parent is None:
        return False
    return (parent.pid == 1 and not _PYTHON.fullmatch(parent.name())) or parent.name() == "systemd"


def _wanted(variables: Variables, launch: Launch | Unknown) -> Iterator[RequestedPorts]:
    for words in () if isinstance(launch, Unknown) else launch.ray_starts:
        yield from _of_ray(words)
    if variables.get("MASTER_PORT").isdigit():
        port = int(variables.get("MASTER_PORT"))
        yield RequestedPorts(port, port, "MASTER_PORT of this shell", needed=False)
    for setting in () if isinstance(launch, Unknown) else launch.settings:
        if setting.name == "MASTER_PORT" and not setting.removed and (setting.value or "").isdigit():
            port = int(setting.value or 0)
            yield RequestedPorts(port, port, "MASTER_PORT", setting.path, setting.line, needed=False)


def _of_ray(words: tuple[Word, ...]) -> Iterator[RequestedPorts]:
    """Yield the ports that a `ray start` takes. Ray continues without its dashboard or its client server."""
    if not words:
        return
    certain = not any(_is_open(word, before) for word, before in zip(words, (None, *words), strict=False))
    head = any(word.text == "--head" for word in words)
    defaults = _RAY_HEAD if head and certain else {}
    for name in (*_RAY_HEAD, *_RAY_OTHERS):
        word = option(words, name)
        if port := _number(word, defaults.get(name, 0)):
            place = word or words[0]
            yield RequestedPorts(
                port, port, f"ray start {name}", place.path, place.line, name not in _RAY_DISPENSABLE
            )
    low, high = option(words, "--min-worker-port"), option(words, "--max-worker-port")
    first, last = _number(low, _RAY_WORKERS[0]), _number(high, _RAY_WORKERS[1])
    if certain and first and last and option(words, "--worker-port-list") is None:
        place = low or high or words[0]
        yield RequestedPorts(first, last, "the ports of Ray's workers", place.path, place.line, needed=False)


def _is_open(word: Word, before: Word | None) -> bool:
    """Whether a variable may expand to several words (`$RAY_ARGS`), and so to any option.

    No default is certain then.
    """
    name = before.written if before is not None else ""
    is_value = name.startswith("--") and "=" not in name and name not in _FLAGS
    return word.text is None and not is_value and _ANY_WORDS.fullmatch(word.written) is not None


def _number(word: Word | None, default: int) -> int:
    """Return the port in an option, 0 if reading cannot determine it."""
    if word is None:
        return default
    return int(word.text) if word.text is not None and word.text.isdigit() else 0


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    """Parse a list of ports as the kernel writes it: 8080,9000-9010."""
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        yield int(first), int(last or first)
