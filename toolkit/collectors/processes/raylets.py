"""The raylets that run here: the parents of Ray's workers, which inherit their environment."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.launch.environment import Variables, as_far_as_shown
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import command_of

# Only these are read from the command line, which also holds the agents' commands. Addresses and a name, no
# secrets.
_OPTIONS = {
    "address": re.compile(r"--node_ip_address=([\w.:\[\]-]+)"),
    "cluster": re.compile(r"--gcs-address=([\w.:\[\]-]+)"),
    "session": re.compile(r"--session-name=([\w.:-]+)"),
}

ADDRESS_FILE = "ray_current_cluster"
"""The file in Ray's folder in which the last `ray start` on a machine left the address of its cluster."""


@dataclass(frozen=True)
class Raylet:
    """One raylet of this user.

    `address` is the node's, `cluster` is the address of its control store (GCS), `session` the name of its
    folder; each is empty if the command line does not give it. `age` is in seconds, and does not identify a
    raylet. `variables` is the environment that it was started with, filtered like this shell's.
    """

    pid: int
    address: str
    cluster: str
    session: str
    age: float = field(compare=False)
    variables: Variables


@dataclass(frozen=True)
class Raylets:
    """This user's raylets, oldest first, and the `hidden` ones: other users', or unreadable ones."""

    running: tuple[Raylet, ...] = ()
    hidden: int = 0


@collector()
def raylets(processes: Processes, machine: Machine) -> Raylets | Unknown:
    """Read the environment of every raylet of this user, as it was at the raylet's start.

    The present environment of its shell does not count.
    """
    found = processes.of("raylet")
    if not found:
        return Absent("no raylet runs on this machine")
    mine = tuple(_of_this_user(found, machine))
    return Raylets(tuple(sorted(mine, key=lambda raylet: -raylet.age)), len(found) - len(mine))


def _of_this_user(found: tuple[Process, ...], machine: Machine) -> Iterator[Raylet]:
    for process in found:
        environ = environ_of(process.pid, machine) if process.mine else None
        if environ is None:
            continue
        command = command_of(process.pid, machine)
        options = {name: match[1] for name, option in _OPTIONS.items() if (match := option.search(command))}
        yield Raylet(
            process.pid,
            options.get("address", ""),
            options.get("cluster", ""),
            options.get("session", ""),
            round(max(time.time() - process.started, 0.0), 1),
            as_far_as_shown(environ),
        )


def environ_of(pid: int, machine: Machine) -> dict[str, str] | None:
    """Return the environment a raylet started with, secrets included; None if unreadable or it has ended.

    While a repair of the job's environment is judged, it is the environment of a restarted raylet.
    """
    text = machine.read(f"/proc/{pid}/environ")
    if not text:
        return None
    pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    return dict(machine.as_started({name: value for name, _, value in pairs}))
