"""What runs in a container or below a profiler, and with which variables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.wrappers.programs import ASSIGNED, starts_program
from verl_doctor.toolkit.sources.shell.found import Argument

CONTAINERS = frozenset(
    {"docker", "docker-compose", "podman", "nerdctl", "apptainer", "singularity", "enroot", "kubectl"}
)
# Programs that start a job without the variables of the shell.
OWN_VARIABLES = frozenset({"docker", "docker-compose", "podman", "nerdctl", "kubectl", "ssh"})
# Programs whose own options end where a Python, a shell or a launcher is called.
AROUND = CONTAINERS | {
    "nsys",
    "ncu",
    "py-spy",
    "strace",
    "gdb",
    "perf",
    "xvfb-run",
    "proxychains",
    "proxychains4",
    "tini",
    "dumb-init",
    "chrt",
    "flock",
    "pixi",
    "pyenv",
    "rye",
    "pdm",
    "hatch",
    "catchsegv",
    "systemd-run",
    "caffeinate",
}
_FLAGS_OF_DOCKER = frozenset(
    {
        "--rm",
        "--detach",
        "--interactive",
        "--tty",
        "--privileged",
        "--init",
        "--read-only",
        "--no-healthcheck",
        "--publish-all",
        "--oom-kill-disable",
        "--quiet",
    }
)


def in_image(options: Sequence[Argument]) -> Iterator[Argument]:
    """Yield the assignments in the options of `docker run -e A=1 --env=B=2`."""
    for before, word in itertools.pairwise(options):
        text = word.text or ""
        attached = re.match(r"--env=|-e(?=[A-Za-z_]\w*=)", text)
        given = text[attached.end() :] if attached else text if before.text in ("-e", "--env") else ""
        if ASSIGNED.match(given):
            yield replace(word, text=given)


def inside(words: list[Argument]) -> list[Argument]:
    """Return what runs in a container or below a profiler.

    It begins at the first word that is a Python, a shell or a launcher. It is empty if there is none.
    """
    entry = next(
        (place for place, word in enumerate(words) if (word.text or "").startswith("--entrypoint")), 0
    )
    if entry:
        return _behind_entrypoint(words, entry)
    return next((words[place:] for place, word in enumerate(words) if place and starts_program(word)), [])


def _behind_entrypoint(words: list[Argument], entry: int) -> list[Argument]:
    """Return what `docker run --entrypoint PROGRAM IMAGE WORDS` runs. Each option has a value but flags."""
    text = words[entry].text or ""
    program = (
        replace(words[entry], text=text.partition("=")[2])
        if "=" in text
        else words[entry + 1]
        if entry + 1 < len(words)
        else None
    )
    place = entry + (1 if "=" in text else 2)
    while place < len(words) and (option := words[place].text or "").startswith("-"):
        is_flag = "=" in option or option in _FLAGS_OF_DOCKER or re.fullmatch(r"-[ditPq]+", option)
        place += 1 if is_flag else 2
    return [program, *words[place + 1 :]] if program is not None and program.text else []
