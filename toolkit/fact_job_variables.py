"""The variables that the process which a job starts with will have: those of this shell, under what the launch files set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.facts import Unknown, collector


@dataclass(frozen=True)
class JobVariables:
    """`values` by name; `places` says where a launch file sets one ("run.sh", 3). `untold` are set to what reading cannot tell."""

    values: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    untold: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        """The value, empty when it is not set or cannot be told."""
        return self.values.get(name, "")

    def has(self, name: str) -> bool:
        """Whether it is set, to whatever value."""
        return name in self.values or name in self.untold


@collector()
def job_variables(variables: Variables, launch: Launch | Unknown) -> JobVariables:
    """Let the launch files set and take away variables in their order. A setting under a condition counts as made."""
    values = dict(variables.values)
    places: dict[str, tuple[str, int]] = {}
    untold = set(variables.withheld)
    for setting in () if isinstance(launch, Unknown) else launch.settings:
        values.pop(setting.name, None)
        places.pop(setting.name, None)
        untold.discard(setting.name)
        if setting.removed:
            continue
        places[setting.name] = (setting.path, setting.line)
        if setting.value is None:
            untold.add(setting.name)
        else:
            values[setting.name] = setting.value
    return JobVariables(values, places, tuple(sorted(untold)))
