"""The processes of a job that are running here: Ray's, vLLM's and SGLang's, told by what they call themselves."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

Role = Literal["raylet", "gcs_server", "ray agent", "ray worker", "engine", "trainer"]

# In order; the first that fits counts. A title is what setproctitle(3) made of the command line, or the program.
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
    ("engine", re.compile(r"VLLM::.*|sglang::.*")),
    (
        "trainer",
        re.compile(
            r"\S*python\S* (?:.* )?\S*(?:\bverl|\brecipe)[./](?:\S*[./])?(?:main_\w+|\w*sft_trainer)\b.*"
        ),
    ),
)
_LONGEST = 60
_BOOTED = re.compile(r"^btime (\d+)$", re.MULTILINE)
_USER = re.compile(r"^Uid:\s+\d+\s+(\d+)", re.MULTILINE)  # the effective one is the second
_PARENT, _STARTED = 4, 22  # fields of /proc/PID/stat


@dataclass(frozen=True)
class Process:
    """One process. `mine` says that it runs as this user, so that its limits and environment may be read.

    `title` is the first word of its command line, which holds no arguments and so no secrets; `started` is in seconds
    since the epoch.
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
        """Those with this role."""
        return tuple(process for process in self.running if process.role == role)


@collector()
def processes(machine: Machine) -> Processes | Unknown:
    """Look through the table of processes. One that ends meanwhile is left out."""
    booted = _BOOTED.search(machine.read("/proc/stat") or "")
    if booted is None:
        return Unknown("there is no table of processes under /proc")
    try:
        names = os.listdir(machine.at("/proc"))  # noqa: PTH208 - names alone
        numbers = sorted(int(name) for name in names if name.isdecimal())
    except OSError as error:
        return Unknown(f"/proc cannot be read: {error.strerror}")
    found = (_process(pid, int(booted[1]), machine) for pid in numbers)
    return Processes(tuple(filter(None, found)))


def _process(pid: int, booted: int, machine: Machine) -> Process | None:
    """A process with a role; None for any other. `booted` is when the machine started, in seconds since the epoch."""
    command = command_of(pid, machine)
    role = role_of(command)
    if role is None:
        return None
    user = _USER.search(machine.read(f"/proc/{pid}/status") or "")
    # The name, in brackets, may hold anything; the fields behind it are numbers, counted in proc(5) from 3.
    fields = (machine.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if user is None or len(fields) < _STARTED:
        return None
    started = booted + int(fields[_STARTED - 3]) / os.sysconf("SC_CLK_TCK")
    mine = int(user[1]) == os.geteuid()
    return Process(pid, int(fields[_PARENT - 3]), role, command.partition(" ")[0][-_LONGEST:], mine, started)


def command_of(pid: int, machine: Machine) -> str:
    """The command line of a process, its words apart by blanks; "" when it has ended, or has none."""
    # setproctitle(3) leaves the rest of the old command line as zero bytes.
    return (machine.read(f"/proc/{pid}/cmdline") or "").rstrip("\0").replace("\0", " ")


def role_of(command: str) -> Role | None:
    """What a process with this command line is to a job."""
    return next((role for role, pattern in _ROLES if pattern.fullmatch(command, 0, 4096)), None)
