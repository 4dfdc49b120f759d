"""One environment variable in the job's driver.

Its workers may have another value: they inherit from a raylet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, THIS_SHELL, Launch, Setting
from verl_doctor.toolkit.facts import Unknown

_USUAL = "/tmp"  # noqa: S108 - it is looked at, not written to


@dataclass(frozen=True)
class DriverVariable:
    """One variable.

    `value` is None if it is not set or not `known`: its value cannot be read, or it is set only
    conditionally.

    `path` and `line`: where a launch file sets it. `given_by` names the source for messages: "TMPDIR in
    run.sh:2", "TMPDIR of this shell".
    """

    value: str | None
    known: bool = True
    path: str = ""
    line: int = 0
    given_by: str = ""


def driver_variable(name: str, shell: Mapping[str, str], launch: Launch | Unknown) -> DriverVariable:
    """Return the variable as set by the last line that sets it, otherwise by this shell.

    Never falls back to an earlier line.
    """
    return last_set(name, shell, () if isinstance(launch, Unknown) else launch.settings)


def last_set(name: str, shell: Mapping[str, str], settings: Sequence[Setting]) -> DriverVariable:
    """The same from the settings of a launch script."""
    last = next((setting for setting in reversed(settings) if setting.name == name), None)
    if last is None:
        value = shell.get(name)
        return DriverVariable(value, given_by="" if value is None else f"{name} of {THIS_SHELL}")
    where = f"{name} in {last.path}:{last.line}" if last.in_file else f"{name} of {COMMAND_LINE}"
    if last.conditional or (last.value is None and not last.removed):
        return DriverVariable(None, known=False, path=last.path, line=last.line, given_by=where)
    return DriverVariable(
        None if last.removed else last.value, path=last.path, line=last.line, given_by=where
    )


def folder_for_ray(shell: Mapping[str, str], launch: Launch | Unknown) -> DriverVariable:
    """Return the parent of Ray's `ray` folder (ray/_common/utils.py: get_default_system_temp_dir).

    A variable set to "" counts.
    """
    named = (driver_variable(name, shell, launch) for name in ("RAY_TMPDIR", "TMPDIR"))
    return next(
        (
            driver_variable
            for driver_variable in named
            if driver_variable.value is not None or not driver_variable.known
        ),
        DriverVariable(_USUAL),
    )


def temporary_folder(shell: Mapping[str, str], launch: Launch | Unknown) -> DriverVariable:
    """Return the shared folder for temporary files.

    A variable set to "" does not count (Python's tempfile, tmpfile(3)).
    """
    named = driver_variable("TMPDIR", shell, launch)
    return named if named.value or not named.known else DriverVariable(_USUAL)
