"""Where a Ray cluster's address is given, and which of these places `ray.init()` would use.

It also covers whether anything responds there.

The order is Ray's own (ray/_private/services.py: canonicalize_bootstrap_address,
get_ray_address_from_environment; the same from Ray 2.10 to 2.60): an address given by the program;
RAY_ADDRESS; the file `ray_current_cluster`, written by every start of a head on this machine; and with "auto"
the raylets that run here, which precede the file if they belong to one cluster. Ray retries an address
without a response forever, so each is tried here, for less than a second.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import given, launch_values
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.collectors.launch.driver_variable import driver_variable, folder_for_ray
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.network.network import is_address, resolve, source_towards, with_port
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.collectors.processes.raylets import ADDRESS_FILE
from verl_doctor.toolkit.collectors.ray.job_nodes import endpoint, option
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.system.ownership import user_name
from verl_doctor.toolkit.system.process_table import command_of
from verl_doctor.toolkit.system.secret import without_user
from verl_doctor.toolkit.system.tcp_probe import Reply, try_connection
from verl_doctor.toolkit.target import Target

Source = Literal[
    "--ray-address",
    "ray.init",
    "RAY_ADDRESS",
    "address file",
    "raylet",
    "ray start --address",
    "ray start --head",
]

_KEYS = ("ray_kwargs.ray_init.address", "ray_init.address")
_TEMP_DIR = ("ray_kwargs.ray_init._temp_dir", "ray_init._temp_dir")
_PORT = "6379"  # default port of a head (ray/scripts/scripts.py)
# Ray takes its own address from the route there (ray/_private/services.py: get_node_ip_address). Nothing is
# sent.
_OUTSIDE = "8.8.8.8"
_RESOLVING, _CONNECT_TIMEOUT = 0.8, 0.8  # seconds
_ANYWHERE = ("", "auto")
UNDETERMINED = "(undetermined)"
"""The text of a place whose address cannot be determined."""

_RAYLETS = {
    "address": re.compile(r"--gcs-address=([\w.:\[\]-]+)"),
    "session": re.compile(r"--session-name=([\w.:-]+)"),
}
_GCS = {
    "host": re.compile(r"--node-ip-address=([\w.:\[\]-]+)"),
    "port": re.compile(r"--gcs_server_port=(\d+)"),
    "session": re.compile(r"--session-name=([\w.:-]+)"),
}
_USER = re.compile(r"^Uid:\s+\d+\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class LocalRay:
    """One cluster's processes on this machine: its raylets, and its GCS server, 0 if that is elsewhere.

    `address` is the GCS's. `user` runs them, `mine`: that is the user who runs verl-doctor. `started` is when
    the first of them started, in seconds since the epoch.
    """

    address: str
    session: str = ""
    raylets: tuple[int, ...] = ()
    gcs: int = 0
    user: str = ""
    mine: bool = True
    started: float = 0.0


@dataclass(frozen=True)
class AddressFile:
    """The file that names the last cluster whose head was started here.

    `age` is in seconds; `owner` is its user.

    `readable` is False if this user may not read it: then Ray stops with PermissionError.
    """

    path: str
    owner: str = ""
    mine: bool = True
    age: float = 0.0
    readable: bool = True


@dataclass(frozen=True)
class Place:
    """A place that gives an address: `text` as written, its `host` and `port`, "" and 0 for none ("auto").

    `given_by` is for messages: "RAY_ADDRESS of this shell". `path` and `line` are where a launch file gives
    it. `reply` is the result of one TCP connection, "" if there was nothing to try, and `error` the kernel's
    error name. An address that the launch files do not reveal is `UNDETERMINED`.
    """

    source: Source
    given_by: str
    text: str
    host: str = ""
    port: int = 0
    reply: Reply | Literal[""] = ""
    error: str = ""
    path: str = ""
    line: int = 0

    @property
    def address(self) -> str:
        """Return host and port, "" if none are named."""
        return with_port(self.host, self.port) if self.host and self.port else ""

    @property
    def trouble(self) -> str:
        """Describe why the connection failed; "" if it succeeded or there was nothing to try."""
        if self.reply in ("", "connected"):
            return ""
        return {
            "refused": f"nothing listens on {self.address}",
            "silence": f"{self.address} does not respond",
            "no such name": f"{self.host} does not resolve to an address",
        }.get(self.reply, f"{self.address} cannot be reached: {self.error}")


@dataclass(frozen=True)
class RayAddresses:
    """All places in Ray's order of precedence; clusters with processes here; the file with an address.

    `folder` is where Ray keeps that file: its `_temp_dir`, or `ray` below RAY_TMPDIR, TMPDIR or /tmp;
    `UNDETERMINED` if unknown. The addresses at which the launch script starts or joins a head come last.
    `submitted`: Ray itself starts the driver (`ray job submit`) and gives it the address; RAY_ADDRESS is then
    the address of the service that accepts jobs.
    """

    places: tuple[Place, ...] = ()
    running: tuple[LocalRay, ...] = ()
    folder: str = ""
    file: AddressFile | None = None
    submitted: bool = False

    def of(self, source: Source) -> Place | None:
        """Return the first place of one kind."""
        return next((place for place in self.places if place.source == source), None)

    @property
    def taken(self) -> Place | None:
        """Return the place that gives the job's `ray.init()` its address, including "local".

        The result is None if it starts a new Ray.

        --ray-address, an option of verl-doctor only, takes precedence. A `ray start` in the launch script
        rewrites the file.
        """
        if self.submitted:
            return self.of("--ray-address")
        chosen = self.of("--ray-address") or self.of("ray.init")
        if chosen is not None and chosen.text not in _ANYWHERE:
            return chosen
        variable = self.of("RAY_ADDRESS")
        if variable is not None and variable.text not in _ANYWHERE:
            return variable
        written = self.of("ray start --head") or self.of("ray start --address")
        if written is not None:
            return written
        file, raylets = self.of("address file"), [place for place in self.places if place.source == "raylet"]
        anywhere = any(place is not None and place.text == "auto" for place in (chosen, variable))
        several = len(raylets) > 1 and file is not None
        return raylets[0] if anywhere and raylets and not several else file

    @property
    def head(self) -> Place | None:
        """Return where the launch script starts a head: anything that answers there now is another head."""
        place = self.of("ray start --head")
        return place if place is not None and place.address else None

    def ray_at(self, address: str) -> LocalRay | None:
        """Return the processes here that belong to the cluster with this address."""
        return next((local_ray for local_ray in self.running if local_ray.address == address), None)


@collector(timeout=8)
def ray_addresses(
    target: Target,
    trees: LibraryTrees,
    variables: Variables,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
    processes: Processes | Unknown,
    machine: Machine,
) -> RayAddresses | Unknown:
    """Collect all places, and try each address once."""
    if all(tree.module != "ray" for tree in trees.trees):
        return Absent("Ray is not installed in this environment")
    running = tuple(local_rays(processes, machine))
    values = launch_values(launch, configuration)
    temporary = given(values, *_TEMP_DIR)
    folder = temporary.text or UNDETERMINED if temporary is not None else _folder(machine, launch)
    address = given(values, *_KEYS)
    places = []
    if target.ray_address:
        places.append(_place("--ray-address", "--ray-address", target.ray_address))
    if address is not None:
        places.append(
            _place("ray.init", address.key, address.text or UNDETERMINED, address.path, address.line)
        )
    places += _variable(variables, launch)
    file = _file(machine, folder) if folder != UNDETERMINED else None
    text = (
        UNDETERMINED
        if folder == UNDETERMINED
        else (machine.read(f"{folder}/{ADDRESS_FILE}") or "").strip()
        if file
        else ""
    )
    if text:
        places.append(_place("address file", f"{folder}/{ADDRESS_FILE}", text))
    places += [
        _place("raylet", f"a raylet (process {local_ray.raylets[0]})", local_ray.address)
        for local_ray in running
        if local_ray.raylets
    ]
    places += _starts(launch)
    submitted = not isinstance(launch, Unknown) and launch.submitted
    return RayAddresses(tuple(_tried(places)), running, folder, file, submitted)


def _place(source: Source, given_by: str, text: str, path: str = "", line: int = 0) -> Place:
    host, port = (endpoint(text) if text != UNDETERMINED else None) or ("", 0)
    return Place(source, given_by, without_user(text)[:200], host, port, path=path, line=line)


def _variable(variables: Variables, launch: Launch | Unknown) -> Iterator[Place]:
    """Yield RAY_ADDRESS as the job's driver has it."""
    found = driver_variable("RAY_ADDRESS", variables.values, launch)
    if found.value or not found.known:
        given_by = "RAY_ADDRESS" if found.path else "RAY_ADDRESS of this shell"
        yield _place("RAY_ADDRESS", given_by, found.value or UNDETERMINED, found.path, found.line)


def _starts(launch: Launch | Unknown) -> Iterator[Place]:
    """Yield the heads that the launch script joins, and those that it starts on this machine."""
    for words in () if isinstance(launch, Unknown) else launch.ray_starts:
        perhaps = any(word.conditional for word in words)
        address = option(words, "--address")
        if address is not None:
            text = UNDETERMINED if perhaps else address.text or UNDETERMINED
            yield _place("ray start --address", "ray start --address", text, address.path, address.line)
        head = next((word for word in words if word.text == "--head"), None)
        if head is not None:
            text = UNDETERMINED if perhaps else _own_address(words)
            yield _place("ray start --head", "ray start --head", text, head.path, head.line)


def _own_address(words: tuple[Word, ...]) -> str:
    """Return the address of the head that these words of `ray start --head` start on this machine."""
    port, host = option(words, "--port"), option(words, "--node-ip-address")
    number = _PORT if port is None else port.text or ""
    own = source_towards(_OUTSIDE) or "127.0.0.1" if host is None else host.text or ""
    return with_port(own, int(number)) if own and number.isdecimal() else UNDETERMINED


def _folder(machine: Machine, launch: Launch | Unknown) -> str:
    """Return Ray's folder as its driver computes it."""
    chosen = folder_for_ray(machine.environ, launch)
    if chosen.value is None:
        return UNDETERMINED
    return os.path.join(machine.cwd, chosen.value, "ray")  # noqa: PTH118 - as Ray does it, which keeps "//" and links


def _file(machine: Machine, folder: str) -> AddressFile | None:
    path = f"{folder}/{ADDRESS_FILE}"
    try:
        found = machine.at(path).stat()
    except (OSError, ValueError):
        return None
    return AddressFile(
        path,
        user_name(found.st_uid),
        found.st_uid == os.geteuid(),
        round(max(time.time() - found.st_mtime, 0.0), 1),
        os.access(machine.at(path), os.R_OK),
    )


def local_rays(processes: Processes | Unknown, machine: Machine) -> Iterator[LocalRay]:
    """Yield the clusters with a raylet or a GCS server here, oldest first, as Ray itself finds them.

    Other users' clusters are included.
    """
    found: dict[str, LocalRay] = {}
    for process in (
        () if isinstance(processes, Unknown) else (*processes.of("gcs_server"), *processes.of("raylet"))
    ):
        local_ray = _local_ray(process, machine)
        # A head started by a driver's ray.init may not name its port; then the session identifies its
        # cluster.
        known = next(
            (key for key, ray in found.items() if local_ray.session and ray.session == local_ray.session),
            local_ray.address,
        )
        before = found.pop(known, None)
        if before is not None:
            local_ray = replace(
                before,
                address=local_ray.address or before.address,
                raylets=(*before.raylets, *local_ray.raylets),
                gcs=before.gcs or local_ray.gcs,
                started=min(before.started, local_ray.started),
            )
        found[local_ray.address or known] = local_ray
    return iter(sorted(found.values(), key=lambda ray: ray.started))


def _local_ray(process: Process, machine: Machine) -> LocalRay:
    command = command_of(process.pid, machine)
    options = _GCS if process.role == "gcs_server" else _RAYLETS
    options_given = {name: match[1] for name, wanted in options.items() if (match := wanted.search(command))}
    port = int(options_given.get("port", 0))
    user = _USER.search(machine.read(f"/proc/{process.pid}/status") or "")
    return LocalRay(
        options_given.get("address") or (with_port(options_given.get("host", ""), port) if port else ""),
        options_given.get("session", ""),
        (process.pid,) if process.role == "raylet" else (),
        process.pid if process.role == "gcs_server" else 0,
        user_name(int(user[1])) if user else "",
        process.mine,
        round(process.started, 1),
    )


def _tried(places: Iterable[Place]) -> Iterator[Place]:
    """Add the result of a connection to each place: one to each address, all at once."""
    places = list(places)
    addresses = sorted({(place.host, place.port) for place in places if place.host and place.port})
    if not addresses:
        return iter(places)
    with TURNS.waiting(), ThreadPoolExecutor(min(len(addresses), 16)) as pool:
        answers = dict(zip(addresses, pool.map(_answer, *zip(*addresses, strict=True)), strict=True))
    return (
        replace(place, reply=answers[place.host, place.port][0], error=answers[place.host, place.port][1])
        if place.address
        else place
        for place in places
    )


def _answer(host: str, port: int) -> tuple[Reply, str]:
    if not is_address(host):
        found = resolve(host, _RESOLVING)
        if not found.addresses:
            return "no such name", found.failed
        host = found.addresses[0]
    answered = try_connection(host, port, _CONNECT_TIMEOUT)
    return answered.reply, answered.error
