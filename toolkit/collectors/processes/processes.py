"""The processes of a job that are running here: Ray's, vLLM's and SGLang's, recognised by their titles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import boot_time, command_of, numbers, row_of, seconds_of

Role = Literal["raylet", "gcs_server", "ray agent", "ray worker", "engine", "trainer"]

# In order; the first match counts. A title is set with setproctitle(3), or is the program.
_ROLES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    ("raylet", re.compile(r"(?:\S*/)?raylet(?: .*)?")),
    ("gcs_server", re.compile(r"(?:\S*/)?gcs_server(?: .*)?")),
    (
        "ray agent",
        re.compile(
            r"ray::(?:DashboardAgent|RuntimeEnvAgent)\b.*|ray-dashboard.*"
            r"|\S*python\S* (?:-\w+ )*\S*/ray/(?:_private|autoscaler|dashboard)/(?:\w+/)*\w+\.py(?: .*)?"
        ),
    ),
    ("ray worker", re.compile(r"ray::.*")),
    # VLLM_PROCESS_NAME_PREFIX puts another word before vLLM's titles (vllm/envs.py).
    (
        "engine",
        re.compile(
            r"(?:VLLM|sglang)::.*|[\w.-]+::(?:EngineCore|Worker|APIServer|DPCoordinator)(?:_\S*)?(?: .*)?"
        ),
    ),
    (
        "trainer",
        re.compile(
            r"\S*python\S* (?:.* )?\S*(?:\bverl|\brecipe)[./](?:\S*[./])?(?:main_\w+|\w*sft_trainer)\b.*"
        ),
    ),
)
_LONGEST = 60


@dataclass(frozen=True)
class Process:
    """One process. `mine`: it runs as this user, so that its limits and environment may be read.

    `title` is the first word of its command line, without arguments and so without secrets; `started` is in
    seconds since the epoch.
    """

    pid: int
    parent: int
    role: Role
    title: str
    mine: bool
    started: float


@dataclass(frozen=True)
class Processes:
    """The processes of jobs, by number."""

    running: tuple[Process, ...] = ()

    def of(self, role: Role) -> tuple[Process, ...]:
        """Return the processes with this role."""
        return tuple(process for process in self.running if process.role == role)


@collector()
def processes(machine: Machine) -> Processes | Unknown:
    """Search the table of processes. A process that ends meanwhile is left out."""
    booted = boot_time(machine)
    if booted is None:
        return Unknown("there is no process table in /proc")
    listed = numbers(machine)
    if isinstance(listed, Unknown):
        return listed
    found = (_process(pid, booted, machine) for pid in listed)
    return Processes(tuple(filter(None, found)))


def _process(pid: int, booted: int, machine: Machine) -> Process | None:
    """Return a process with a role; None for any other.

    `booted` is when the machine started, in seconds since the epoch.
    """
    command = command_of(pid, machine)
    role = role_of(command)
    row = row_of(pid, machine, command) if role else None
    if role is None or row is None:
        return None
    return Process(pid, row.parent, role, row.title[-_LONGEST:], row.mine, booted + seconds_of(row.ticks))


def role_of(command: str) -> Role | None:
    """Return the role of a process with this command line."""
    return next((role for role, pattern in _ROLES if pattern.fullmatch(command, 0, 4096)), None)
