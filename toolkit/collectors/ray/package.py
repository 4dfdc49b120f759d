"""What Ray would pack of the job's `working_dir` and send to the cluster.

It is counted with the installed Ray's own functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, WorkingDir, where_set
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import ray_package as ray_package_probe
from verl_doctor.toolkit.system.child import ending, run_probe

VARIABLES = (
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE",
    "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES",
    "RAY_max_grpc_message_size",
)
"""Also used by Ray's own functions."""

_WALK, _LIMIT = 4.0, 12.0  # seconds: for the files, and until the child is stopped
_SMALL = 1 << 20  # bytes; smaller parts are not reported


@dataclass(frozen=True)
class PackagePart:
    """A part of the package without programs.

    It is a file, a folder without any (`name` ends in "/"), or an environment.
    """

    name: str
    size: int


@dataclass(frozen=True)
class RayPackage:
    """What would be sent. `size` is the archive's in bytes, `files` their number.

    `limit` is what the installed Ray accepts, for a job that is `submitted` through the dashboard or not.
    `parts` are the large ones, the largest first; none is within another. `whole` is False if time ran out
    before all was counted. `failed` is the error of Ray's own packing. `listed_in` is the file that lists
    what to exclude, as `excludes` has it now, "" if there is none. `path` and `line` name the folder.
    """

    folder: str
    path: str
    line: int
    size: int
    files: int
    limit: int
    submitted: bool = True
    parts: tuple[PackagePart, ...] = ()
    excludes: tuple[str, ...] = ()
    listed_in: str = ""
    whole: bool = True
    failed: str = ""


@collector(timeout=15)
def ray_package(
    machine: Machine,
    launch: Launch,
    interpreter: Interpreter,
    trees: LibraryTrees,
    variables: Variables,
) -> RayPackage | Unknown:
    """Let Ray choose the files, in a child of the target's interpreter, and add up their sizes."""
    named = launch.working_dir
    if named is None:
        return Absent("the job sends no folder to the cluster")
    if named.folder is None:
        return Unknown(f"{named.path}:{named.line}: the folder that is sent cannot be determined by reading")
    folder = os.path.normpath(machine.cwd / machine.expanded(named.folder))
    if "://" in named.folder or not os.path.isdir(folder):
        return Absent(f"{named.folder} is not a folder here")
    if all(tree.module != "ray" for tree in trees.trees):
        return Unknown("Ray is not installed in this environment, and it decides what is packed")
    order = {"folder": folder, "excludes": named.excludes, "limit": _WALK}
    given = {name: value for name in VARIABLES if (value := _value(name, variables, launch))}
    result = run_probe(
        machine,
        interpreter.executable,
        ray_package_probe,
        json.dumps(order),
        timeout=_LIMIT,
        variables=given,
    )
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"Ray did not report what it would pack: {ending(output, _LIMIT)}")
    return _package(reported, folder, named, submitted=launch.submitted or bool(named.listed_in))


def _value(name: str, variables: Variables, launch: Launch) -> str | None:
    places = where_set(name, variables, launch)
    return places[0].value if places else None


def _package(reported: Mapping[str, Any], folder: str, named: WorkingDir, *, submitted: bool) -> RayPackage:
    limits = [reported["limits"]["store"], *([reported["limits"]["dashboard"]] if submitted else [])]
    return RayPackage(
        folder,
        named.path,
        named.line,
        reported["size"],
        reported["number"],
        min((limit for limit in limits if limit), default=0),
        submitted,
        tuple(parts_of(reported["folders"], reported["files"], reported["environments"])),
        named.excludes,
        named.listed_in,
        reported["whole"],
        reported["failed"],
    )


def parts_of(
    folders: Iterable[tuple[str, int, int]],
    files: Iterable[tuple[str, int]],
    environments: Collection[str] = (),
) -> Iterator[PackagePart]:
    """Yield the large parts, the largest first.

    `folders` have a name, a size, and the number of programs in them. A part is the topmost folder without
    any, or a virtual environment; elsewhere it is a single file.
    """
    sizes = {}
    data = set()
    for name, size, programs in folders:
        sizes[name] = size
        if not programs or name in environments:
            data.add(name)
    topmost = {name for name in data if not any(above in data for above in _above(name))}
    parts = [PackagePart(f"{name}/", sizes[name]) for name in topmost]
    parts += [
        PackagePart(name, size)
        for name, size in files
        if not any(above in data for above in _above(name)) and _extension(name) not in ray_package_probe.CODE
    ]
    yield from sorted((part for part in parts if part.size >= _SMALL), key=lambda part: -part.size)


def _above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _extension(name: str) -> str:
    return os.path.splitext(name)[1]  # noqa: PTH122 - it is a name in an archive
