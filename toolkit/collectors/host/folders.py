"""The job's temporary files: Ray's sessions with their sockets, spilled objects, and all others.

Ray uses --temp-dir, or RAY_TMPDIR, TMPDIR, /tmp with `ray` below it (ray/_common/utils.py, earlier
ray/_private/utils.py: get_default_system_temp_dir). Everything else uses TMPDIR or /tmp.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import Template
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.host.spilling import Spilling
from verl_doctor.toolkit.collectors.launch.driver_variable import (
    DriverVariable,
    driver_variable,
    folder_for_ray,
    temporary_folder,
)
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.ray_start import RayStarts
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import file_system_of, may_write, nearest, space_of
from verl_doctor.toolkit.system.process_table import command_of

Use = Literal["Ray's sessions", "temporary files", "spilled objects"]

_RAYLETS_FOLDER = re.compile(r"--temp[-_]dir=(\S+)")
_DEFAULT = "/tmp"  # noqa: S108 - it is looked at, not written to
_KEY = "ray_kwargs.ray_init._temp_dir"
_ADDRESS = "ray_kwargs.ray_init.address"


@dataclass(frozen=True)
class Folder:
    """A folder, and the file system that holds it or will hold it.

    `given_by` is what set it, "" for a default. `size` and `free`, as far as this user may fill it, are in
    bytes; `inodes` is None if a file system creates them as needed. `shared`: other machines may see the same
    files. `runnable`: programs and libraries in it may be run (no `noexec`). `read_only`: the mount is.
    `in_use`: a raylet has it.
    """

    use: Use
    path: str
    given_by: str = ""
    size: int | None = None
    free: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    kind: str = ""
    shared: bool = False
    runnable: bool = True
    writable: bool = True
    read_only: bool = False
    in_use: bool = False

    @property
    def full(self) -> float | None:
        """The used part of the space, 0 to 1."""
        return None if not self.size or self.free is None else 1 - self.free / self.size


@dataclass(frozen=True)
class Folders:
    """The folders of the job on this machine.

    Those for spilled objects are listed only if they are configured. A `spare` folder has a short path that
    Ray could use instead.
    """

    folders: tuple[Folder, ...] = ()
    spare: Folder | None = None

    def of(self, use: Use) -> tuple[Folder, ...]:
        """Return the folders for one use."""
        return tuple(folder for folder in self.folders if folder.use == use)


@dataclass(frozen=True)
class Choice:
    """A configured path, and what set it. It may contain unknown variables."""

    path: str
    given_by: str


@collector()
def folders(
    machine: Machine,
    processes: Processes | Unknown,
    launch: Launch | Unknown,
    starts: RayStarts | Unknown,
    configuration: Configuration | Unknown,
    spilling: Spilling | Unknown,
) -> Folders:
    """Check the folders of the running raylets, and those that a Ray started from here would use.

    The latter are checked as far as they are certain.

    If raylets are running, the latter count only if they are configured and the job joins no Ray.
    """
    running = list(_of_raylets(machine, processes))
    taken = {choice.path for choice in running}
    own = [
        choice
        for choice in _ray_would_take(machine, launch, starts, configuration)
        if not running
        or (choice.given_by and choice.path not in taken and not _joins(machine, launch, configuration))
    ]
    temporary = temporary_folder(machine.environ, launch)
    found = [
        *(_folder(machine, "Ray's sessions", choice, in_use=True) for choice in running),
        *(_folder(machine, "Ray's sessions", choice) for choice in own),
        *(_folder(machine, "temporary files", choice) for choice in _choices(temporary)),
        *(_folder(machine, "spilled objects", choice) for choice in _for_spilling(spilling)),
    ]
    spare = _folder(machine, "Ray's sessions", Choice(f"{_DEFAULT}/ray-{os.getuid()}", ""))
    return Folders(tuple(folder for folder in found if "$" not in folder.path), spare)


def _of_raylets(machine: Machine, processes: Processes | Unknown) -> Iterator[Choice]:
    raylets = () if isinstance(processes, Unknown) else processes.of("raylet")
    for raylet in raylets:
        command = command_of(raylet.pid, machine) if raylet.mine else ""
        if match := _RAYLETS_FOLDER.search(command):
            yield Choice(match[1], f"the raylet (process {raylet.pid})")


def _joins(machine: Machine, launch: Launch | Unknown, configuration: Configuration | Unknown) -> bool:
    """Return whether the job names a Ray that it joins, even by an unknown value."""
    address = driver_variable("RAY_ADDRESS", machine.environ, launch)
    named = None if isinstance(configuration, Unknown) else configuration.get(_ADDRESS)
    return address.value is not None or not address.known or named not in (None, MISSING)


def _ray_would_take(
    machine: Machine,
    launch: Launch | Unknown,
    starts: RayStarts | Unknown,
    configuration: Configuration | Unknown,
) -> list[Choice]:
    """Return the folder that a Ray started by the job would use; none if unknown."""
    for start in () if isinstance(starts, Unknown) else starts.commands:
        if path := start.options.get("temp-dir"):
            return [Choice(_expanded(path, machine), f"{start.path}:{start.line}")]
    if not isinstance(configuration, Unknown) and isinstance(path := configuration.get(_KEY), str):
        return [Choice(path, _KEY)]
    above = _choices(folder_for_ray(machine.environ, launch))
    # Like Ray, which keeps "//" and links.
    return [Choice(os.path.join(machine.cwd, choice.path, "ray"), choice.given_by) for choice in above]  # noqa: PTH118


def _for_spilling(spilling: Spilling | Unknown) -> Iterator[Choice]:
    if not isinstance(spilling, Unknown):
        yield from (Choice(path, spilling.given_by) for path in spilling.paths)


def _choices(named: DriverVariable) -> list[Choice]:
    return [] if named.value is None else [Choice(named.value, named.given_by)]


def _expanded(path: str, machine: Machine) -> str:
    """Return the path with the user's own variables expanded; others stay as they are written."""
    return machine.expanded(Template(path).safe_substitute(machine.environ))


def _folder(machine: Machine, use: Use, choice: Choice, *, in_use: bool = False) -> Folder:
    existing = nearest(machine, choice.path)
    mount = file_system_of(machine, choice.path)
    about = Folder(
        use,
        choice.path,
        choice.given_by,
        kind=mount.kind if mount else "",
        shared=mount is not None and mount.shared,
        runnable=mount is None or "noexec" not in mount.options,
        writable=may_write(existing),
        read_only=mount is not None and mount.read_only,
        in_use=in_use,
    )
    space = space_of(existing)
    if space is None:
        return about
    return replace(
        about,
        size=space.size,
        free=space.free,
        inodes=space.inodes,
        inodes_free=space.inodes_free,
    )
