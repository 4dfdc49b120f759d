"""Shared by the fixes that let the workers have what the driver has."""

from __future__ import annotations

from collections.abc import Iterable

from verl_doctor.checks._effective import PER_NODE
from verl_doctor.toolkit.change import Change, Refusal, SetVariable
from verl_doctor.toolkit.fact_effective_environment import Effective, EffectiveEnvironment


def as_the_driver(rows: Iterable[Effective], why: str) -> list[Change] | Refusal:
    """Give the driver's values to all processes. `why` may name the variable as `{name}`."""
    changes: list[Change] = []
    hidden = []
    for row in rows:
        value = row.driver.whole
        if value is None:
            hidden.append(row.name)
            continue
        said = why.format(name=row.name)
        changes.append(SetVariable(row.name, value, said, node_only=row.name in PER_NODE))
    if not changes:
        named = ", ".join(hidden)
        return Refusal(
            f"the value of {named} is not written to a file; export it before ray start on every node"
        )
    return changes


def row_of(environment: EffectiveEnvironment, message: str) -> list[Effective]:
    """The row that a finding speaks of: its message begins with the name."""
    row = environment.get(message.split(" ", 1)[0].rstrip(":"))
    return [] if row is None else [row]
