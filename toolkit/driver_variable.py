"""One environment variable as the job's driver has it, which is not what its workers have: they inherit from a raylet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.facts import Unknown


@dataclass(frozen=True)
class DriverVariable:
    """`value` is None when it is not set, or set to what reading cannot tell. `path` and `line`: where a launch file sets it."""

    value: str | None
    path: str = ""
    line: int = 0


def driver_variable(name: str, shell: Mapping[str, str], launch: Launch | Unknown) -> DriverVariable:
    """The last line of the launch files counts, one under a condition too, or else this shell."""
    settings = [] if isinstance(launch, Unknown) else [one for one in launch.settings if one.name == name]
    if not settings:
        return DriverVariable(shell.get(name))
    last = settings[-1]
    return DriverVariable(None if last.removed else last.value, last.path, last.line)
