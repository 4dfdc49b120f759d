"""Shared by the fixes that give the workers the driver's values."""

from __future__ import annotations

from collections.abc import Iterable

from verl_doctor.checks.shared.effective import PER_NODE
from verl_doctor.checks.shared.variables import variable_of
from verl_doctor.toolkit.change import Change, Refusal, SetVariable
from verl_doctor.toolkit.collectors.variables.effective_environment import Effective, EffectiveEnvironment
from verl_doctor.toolkit.rule import Finding


def as_the_driver(rows: Iterable[Effective], why: str) -> list[Change] | Refusal:
    """Give the driver's values to all processes.

    `why` may contain `{name}`, which stands for the variable.
    """
    changes: list[Change] = []
    hidden = []
    for row in rows:
        value = row.driver.whole
        if value is None:
            hidden.append(row.name)
            continue
        reason = why.format(name=row.name)
        changes.append(SetVariable(row.name, value, reason, node_only=row.name in PER_NODE))
    if not changes:
        named = ", ".join(hidden)
        return Refusal(
            f"the value of {named} is not written to a file; export it on every node before ray start"
        )
    return changes


def row_of(environment: EffectiveEnvironment, finding: Finding) -> list[Effective]:
    """Return the row of a finding's variable."""
    row = environment.get(variable_of(finding))
    return [] if row is None else [row]
