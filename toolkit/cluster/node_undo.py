"""The part of the parcel that undoes repairs in the environment of its node, like `undo` there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair.recorded import history, undo_runs, undone_lines
from verl_doctor.toolkit.target import Target


def undone(machine: Machine, target: Target, wanted: Mapping[str, Any]) -> dict[str, list[str]]:
    """Undo the last repair of the target, or "everything".

    Return lines about what was undone, and why something was not.
    """
    found = history(target, machine)
    if found.damaged:
        return {"lines": [], "refused": list(found.damaged)}
    standing = found.standing(everything=wanted["everything"])
    done, refused = undo_runs(recorded.parts for recorded in standing)
    lines = [line for transaction in done for line in undone_lines(transaction)]
    return {"lines": lines or (["there is nothing to undo"] if not refused else []), "refused": refused}
