"""Ending processes that dead jobs have left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.collectors.leftovers.processes import left_processes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import EndProcess, Leftover, Leftovers, Outcome
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.end_processes import end_processes

_SIZES = Unknown("of what they hold nothing is asked")


def remove(leftovers: Sequence[Leftover], machine: Machine) -> Iterator[Outcome]:
    """Ask those to end that are proven to be left over at this moment, too; then end those of them that do not."""
    now = left_processes.collect(gpus=_SIZES, machine=machine)
    proven = {removal.removal for removal in now.found} if isinstance(now, Leftovers) else set()
    outcomes = end_processes([removal for removal in map(_removal, leftovers) if removal in proven], machine)
    for leftover in leftovers:
        why = outcomes.get(_removal(leftover), "a second look does not prove it any more")
        yield Outcome(leftover, "not removed" if why else "removed", why)


def _removal(leftover: Leftover) -> EndProcess:
    if not isinstance(leftover.removal, EndProcess):
        raise TypeError(f"{type(leftover.removal).__name__} ends no process")
    return leftover.removal
