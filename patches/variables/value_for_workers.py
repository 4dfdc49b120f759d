"""Fix for ENV111: give the workers the driver's value instead of the raylet's."""

from __future__ import annotations

from verl_doctor.patches.variables._for_workers import as_the_driver, row_of
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.rule import Finding


@fix(
    "value-for-workers",
    repairs="ENV111",
    safety="unsafe",
    restart="Ray on every node: source the file before ray start",
)
def value_for_workers(finding: Finding, environment: EffectiveEnvironment) -> list[Change] | Refusal:
    """Give the workers the driver's value instead of the raylet's.

    Unsafe, although it can be undone: the raylet's value may be the intended one.
    """
    why = "the driver and the raylet have different values of {name}"
    return as_the_driver(row_of(environment, finding), why)
