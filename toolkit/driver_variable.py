"""One environment variable as the job's driver has it, which is not what its workers have: they inherit from a raylet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.facts import Unknown


@dataclass(frozen=True)
class DriverVariable:
    """`value` is None when it is not set, or when it is not `told`: set to what reading cannot tell, or under a condition only.

    `path` and `line`: where a launch file sets it.
    """

    value: str | None
    told: bool = True
    path: str = ""
    line: int = 0


def driver_variable(name: str, shell: Mapping[str, str], launch: Launch | Unknown) -> DriverVariable:
    """The last line of the launch files counts, or else this shell."""
    settings = [] if isinstance(launch, Unknown) else [one for one in launch.settings if one.name == name]
    if not settings:
        return DriverVariable(shell.get(name))
    last = settings[-1]
    if last.conditional or (last.value is None and not last.removed):
        return DriverVariable(None, told=False, path=last.path, line=last.line)
    return DriverVariable(None if last.removed else last.value, path=last.path, line=last.line)
