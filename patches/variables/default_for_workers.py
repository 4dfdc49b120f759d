"""Fix for ENV109: give the workers the driver's value, which keeps verl from setting its default."""

from __future__ import annotations

from verl_doctor.patches.variables._for_workers import as_the_driver, row_of
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.rule import Finding


@fix(
    "default-for-workers",
    repairs="ENV109",
    safety="safe",
    restart="Ray on every node: source the file before ray start",
)
def default_for_workers(finding: Finding, environment: EffectiveEnvironment) -> list[Change] | Refusal:
    """Give the workers the driver's value, which keeps verl from setting its default."""
    why = (
        "verl does not set its default of {name} because the driver sets the variable, so the raylet must "
        "have it too"
    )
    return as_the_driver(row_of(environment, finding), why)
