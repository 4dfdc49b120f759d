"""Fix for ENV108: give the workers the driver's values."""

from __future__ import annotations

from verl_doctor.checks.shared.effective import dead, lost_on_the_way
from verl_doctor.patches.variables._for_workers import as_the_driver
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding

RESTART = "Ray on every node: source the file before ray start"


@fix("variables-for-workers", repairs="ENV108", safety="safe", restart=RESTART)
def variables_for_workers(
    _: Finding, environment: EffectiveEnvironment, readers: VariableReaders | Unknown
) -> list[Change] | Refusal:
    """Give the workers the driver's values, which must be set before Ray starts or passed on with the job."""
    unread = dead(readers)
    lost = [row for row in lost_on_the_way(environment) if row.name not in unread]
    return as_the_driver(lost, "{name} is set for the driver only; the raylet was started without it")
