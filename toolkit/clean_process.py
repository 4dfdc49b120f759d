"""Ending processes that dead jobs have left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.end_processes import end_processes
from verl_doctor.toolkit.leftover import EndProcess, Leftover, Outcome
from verl_doctor.toolkit.machine import Machine


def remove(leftovers: Sequence[Leftover], machine: Machine) -> Iterator[Outcome]:
    """Ask all of them to end, then end those that do not."""
    removals = {one: one.removal for one in leftovers if isinstance(one.removal, EndProcess)}
    told = end_processes(list(removals.values()), machine)
    for leftover, removal in removals.items():
        why = told[removal]
        yield Outcome(leftover, "not removed" if why else "removed", why)
