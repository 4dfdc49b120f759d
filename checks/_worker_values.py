"""The values that the job's workers see of a variable, and where they are set."""

from __future__ import annotations

from verl_doctor.checks._variables import Place, places
from verl_doctor.toolkit.fact_effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Location


def worker_places(
    name: str, variables: Variables, launch: Launch | Unknown, environment: EffectiveEnvironment | Unknown
) -> list[Place]:
    """Where the value comes from that workers see; nothing when they see none.

    Where what the workers see cannot be told, every place that sets the variable for some process of the job.
    """
    written = places(name, variables, launch)
    row = None if isinstance(environment, Unknown) else environment.get(name)
    if isinstance(environment, Unknown) or (row is not None and row.worker.untold):
        return written
    if row is None or row.worker.text is None:
        return []
    same = [place for place in written if place.value == row.worker.text]
    location = Location(row.path, row.line or None) if row.path else None
    return same[:1] or [Place(name, row.worker.text, location, row.path or row.decided_by)]
