"""The variables that the job's workers will certainly have, else those that the job starts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown, collector


@dataclass(frozen=True)
class JobVariables:
    """`values` by name; `places` is where a launch file sets a variable ("run.sh", 3).

    `undetermined` are set to unknown values.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    undetermined: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        """Return the value, empty if it is not set or unknown."""
        return self.values.get(name, "")

    def has(self, name: str) -> bool:
        """Return whether it is set, to any value."""
        return name in self.values or name in self.undetermined


@collector(kept=True)
def job_variables(
    variables: Variables, launch: Launch | Unknown, environment: EffectiveEnvironment | Unknown
) -> JobVariables:
    """Apply the launch files to this shell's variables in order, then what is certain to reach the workers.

    A conditional setting counts as executed.
    """
    values = dict(variables.values)
    places: dict[str, tuple[str, int]] = {}
    undetermined = set(variables.withheld)

    def put(name: str, value: str | None, place: tuple[str, int] | None) -> None:
        """Set a variable, or remove it if the value is None."""
        values.pop(name, None)
        places.pop(name, None)
        undetermined.discard(name)
        if value is not None:
            values[name] = value
        if place is not None:
            places[name] = place

    for setting in () if isinstance(launch, Unknown) else launch.settings:
        put(setting.name, setting.value, None if setting.removed else (setting.path, setting.line))
        if setting.value is None and not setting.removed:
            undetermined.add(setting.name)
    for row in () if isinstance(environment, Unknown) else environment.rows:
        if not row.worker.undetermined and row.worker.text != values.get(row.name):
            put(row.name, row.worker.text, (row.path, row.line) if row.path else None)
    return JobVariables(values, places, tuple(sorted(undetermined)))
