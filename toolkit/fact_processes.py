"""The processes of a job that are running here: Ray's, vLLM's and SGLang's, told by what they call themselves."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.facts import Unknown, collector

Role = Literal["raylet", "gcs_server", "ray agent", "ray worker", "engine", "trainer"]

# In order; the first that fits counts. A title is what setproctitle(3) made of the command line, or the program.
_ROLES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    ("raylet", re.compile(r"(?:\S*/)?raylet(?: .*)?")),
    ("gcs_server", re.compile(r"(?:\S*/)?gcs_server(?: .*)?")),
    ("ray agent", re.compile(r"ray::(?:DashboardAgent|RuntimeEnvAgent)\b.*|ray-dashboard.*")),
    ("ray worker", re.compile(r"ray::.*")),
    ("engine", re.compile(r"VLLM::.*|sglang::.*")),
    ("trainer", re.compile(r"\S*python\S* .*\bverl[./]\S*main_\w+.*")),
)
_LONGEST = 60


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
def processes() -> Processes | Unknown:
    """Look through the table of processes. One that ends meanwhile is left out."""
    import psutil  # noqa: PLC0415 - ten milliseconds

    found = []
    user = os.geteuid() if hasattr(os, "geteuid") else None
    for each in psutil.process_iter(["pid", "ppid", "uids", "cmdline", "create_time"]):
        about = each.info
        words: list[str] = about["cmdline"] or []
        role = role_of(" ".join(words))
        if role is not None:
            mine = about["uids"] is not None and about["uids"].effective == user
            title = words[0].split(" ")[0][-_LONGEST:]
            found.append(
                Process(about["pid"], about["ppid"] or 0, role, title, mine, about["create_time"] or 0.0)
            )
    return Processes(tuple(found))


def role_of(command: str) -> Role | None:
    """What a process with this command line is to a job."""
    return next((role for role, pattern in _ROLES if pattern.fullmatch(command, 0, 4096)), None)
