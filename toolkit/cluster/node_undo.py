"""The part of the parcel that undoes repairs in the environment of its node, as `undo` would there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair.recorded import history, take_back, undone_words
from verl_doctor.toolkit.target import Target


def undone(machine: Machine, target: Target, wanted: Mapping[str, Any]) -> dict[str, list[str]]:
    """Undo the last repair of the target, or "everything"; return what is undone, in lines, and why something is not."""
    found = history(target, machine)
    if found.damaged:
        return {"lines": [], "refused": list(found.damaged)}
    standing = found.standing(everything=wanted["everything"])
    done, refused = take_back(recorded.parts for recorded in standing)
    lines = [line for transaction in done for line in undone_words(transaction)]
    return {"lines": lines or (["there is nothing to undo"] if not refused else []), "refused": refused}
