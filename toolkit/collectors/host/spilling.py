"""Where Ray is configured to spill objects that do not fit in memory, other than the folder of its session.

The order is Ray's own since 2.47 (ray/_private/node.py: _get_object_spilling_config): the option of `ray
start` or of ray.init, RAY_object_spilling_directory, then the configuration in JSON, which is all that older
releases have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import Template
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.driver_variable import driver_variable
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, where_set
from verl_doctor.toolkit.collectors.launch.ray_start import RayStarts
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import command_of

_FOLDER, _CONFIG = "object_spilling_directory", "object_spilling_config"
_INIT = "ray_kwargs.ray_init"
_RAYLETS_FOLDER = re.compile(r"--fallback_directory=(\S+)")
_IN_A_SESSION = re.compile(r"/session_[\d-]+_")
_ON_FILES = "filesystem"


@dataclass(frozen=True)
class Spilling:
    """The folders for spilled objects: `paths` are absolute, and `given_by` is what sets them.

    `further` are from settings that do not count now: a job that has ended may have spilled there. `storage`
    is Ray's name for the kind, "filesystem" for folders. `wrong` is why Ray cannot read the setting.
    """

    paths: tuple[str, ...] = ()
    given_by: str = ""
    storage: str = _ON_FILES
    wrong: str = ""
    further: tuple[str, ...] = ()


@collector()
def spilling(
    machine: Machine,
    processes: Processes | Unknown,
    launch: Launch | Unknown,
    variables: Variables,
    starts: RayStarts | Unknown,
    configuration: Configuration | Unknown,
) -> Spilling | Absent:
    """Take the setting of the running raylets, or else the first setting that a job's Ray would read."""
    running = list(_of_raylets(machine, processes))
    configured = (
        *_of_commands(starts),
        *_of_ray_init(configuration),
        *_of_variables(launch, variables),
    )
    named = [*running, *sorted(configured, key=lambda entry: entry[0] != _FOLDER)]
    every = [_whole(*entry, machine) for entry in (*named, *_of_all_lines(launch, variables))]
    if not every:
        return Absent("no folder for spilling is set: Ray uses the folder of its session")
    counts = every[0] if named else Spilling()
    further = dict.fromkeys(path for entry in every for path in entry.paths if path not in counts.paths)
    return replace(counts, further=tuple(further))


NamedFolder = tuple[str, str, str]
"""Which of the two settings, its text, and what sets it."""


def _of_raylets(machine: Machine, processes: Processes | Unknown) -> Iterator[NamedFolder]:
    for raylet in () if isinstance(processes, Unknown) else processes.of("raylet"):
        named = _RAYLETS_FOLDER.search(command_of(raylet.pid, machine)) if raylet.mine else None
        if named and not _IN_A_SESSION.search(named[1]):
            yield _FOLDER, named[1], f"the raylet (process {raylet.pid})"


def _of_commands(starts: RayStarts | Unknown) -> Iterator[NamedFolder]:
    for start in () if isinstance(starts, Unknown) else starts.commands:
        where = f"ray start in {start.path}:{start.line}"
        if path := start.options.get(_FOLDER.replace("_", "-")):
            yield _FOLDER, path, where
        yield from _of_system(_json(start.options.get("system-config", "")), where)


def _of_ray_init(configuration: Configuration | Unknown) -> Iterator[NamedFolder]:
    if isinstance(configuration, Unknown):
        return
    if isinstance(path := configuration.get(f"{_INIT}.{_FOLDER}"), str):
        yield _FOLDER, path, f"{_INIT}.{_FOLDER}"
    system = {name: configuration.get(f"{_INIT}._system_config.{name}") for name in (_FOLDER, _CONFIG)}
    yield from _of_system(system, f"{_INIT}._system_config")


def _of_system(system: Any, where: str) -> Iterator[NamedFolder]:
    for name in (_FOLDER, _CONFIG) if isinstance(system, dict) else ():
        if isinstance(text := system.get(name), str) and text:
            yield name, text, where


def _of_variables(launch: Launch | Unknown, variables: Variables) -> Iterator[NamedFolder]:
    for name in (_FOLDER, _CONFIG):
        found = driver_variable(f"RAY_{name}", variables.values, launch)
        if found.value:
            yield name, found.value, found.given_by


def _of_all_lines(launch: Launch | Unknown, variables: Variables) -> Iterator[NamedFolder]:
    """Yield the possible present or past values of the variables."""
    for name in (_FOLDER, _CONFIG):
        for place in where_set(f"RAY_{name}", variables, launch):
            if place.value:
                yield name, place.value, place.path


def _read(kind: str, text: str) -> Spilling:
    """Parse a setting as Ray does (ray/_private/external_storage.py: setup_external_storage)."""
    if kind == _FOLDER:
        return Spilling((text,))
    settings = _json(text)
    if not isinstance(settings, dict):
        return Spilling(wrong="it is not a JSON object")
    storage, params = settings.get("type"), settings.get("params")
    if not isinstance(storage, str):
        return Spilling(wrong='it has no "type"')
    if storage != _ON_FILES:
        return Spilling(storage=storage)
    folders = params.get("directory_path") if isinstance(params, dict) else None
    paths = [folders] if isinstance(folders, str) else folders
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        return Spilling(wrong='it has no "directory_path" in "params"')
    return Spilling(tuple(paths))


def _whole(kind: str, text: str, given_by: str, machine: Machine) -> Spilling:
    """Parse a setting, with absolute paths and the user's own variables expanded."""
    found = _read(kind, text)
    plain = (machine.expanded(Template(path).safe_substitute(machine.environ)) for path in found.paths)
    return replace(found, paths=tuple(str(machine.cwd / path) for path in plain), given_by=given_by)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
