"""The interpreter that the launch script names by its path, where it is not the one examined."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.import_path import (
    adds_folder,
    is_on_path,
    pth_lines,
    sees_system,
)
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, changes_folder, folder_of
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target, is_program

_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_CHANGE_NO_PATHS = frozenset(
    {"env", "exec", "nohup", "time", "timeout", "nice", "numactl", "taskset", "setsid", "stdbuf"}
)
"""Programs that start another one in the file system in which they run themselves."""
_SITES = ("lib*/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/*-packages")


@dataclass(frozen=True)
class ScriptPython:
    """An interpreter as the script names it at `path` and `line`, and a package that it lacks.

    It is a package of the job, "" for none.
    """

    python: str
    path: str
    line: int
    lacks: str = ""


@collector()
def script_python(
    launch: Launch, target: Target, variables: JobVariables, machine: Machine
) -> ScriptPython | Unknown:
    """Look for verl and torch in the folders in which that interpreter would look. It is not started."""
    command = launch.command
    named = _named(command) if command is not None and command.of_verl and not launch.is_elsewhere else None
    if command is None or named is None:
        return Absent("the launch script names no interpreter by its path")
    if named.parent == target.python.parent or not is_program(named):
        return Absent("the script's interpreter is the one examined, or a wrapper that may start anything")
    own = variables.get("PYTHONPATH").split(os.pathsep)
    if "PYTHONPATH" in variables.undetermined or any("$" in entry for entry in own) or changes_folder(launch):
        return Unknown("where the script's interpreter looks for modules is not known")
    prefixes = dict.fromkeys((named.parent.parent, named.resolve().parent.parent))
    if any(map(sees_system, prefixes)):
        return Unknown("the script's interpreter shares the packages of another one")
    here = folder_of(launch, machine.cwd)
    sites = [site for prefix in prefixes for pattern in _SITES for site in prefix.glob(pattern)]
    sites += Path(machine.home, ".local").glob(_SITES[0]) if machine.home else ()
    path = [str(here), *(str(here / entry) for entry in own if entry), *map(str, sites)]
    path += [str(site / line) for site in sites for line in pth_lines(site) if adds_folder(line)]
    lacks = next((name for name in ("verl", "torch") if not is_on_path(name, path)), "")
    return ScriptPython(str(named), command.path, command.line, lacks)


def _named(command: Command) -> Path | None:
    """Return the absolute path of the interpreter, if all programs before it leave paths as they are."""
    *before, last = command.names or ("",)
    plain = all(os.path.basename(name) in _CHANGE_NO_PATHS for name in before)  # noqa: PTH119
    absolute = last.startswith("/") and _PYTHON.fullmatch(os.path.basename(last))  # noqa: PTH119
    return Path(last) if plain and absolute else None
