"""End processes that dead jobs left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.collectors.leftovers.processes import left_processes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import EndProcess, Leftover, Leftovers, Outcome
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.end_processes import end_processes

_SIZES = Unknown("the memory they hold is not examined")


def remove(leftovers: Sequence[Leftover], machine: Machine) -> Iterator[Outcome]:
    """Send SIGTERM to those that are still proven to be left over, then SIGKILL to those that remain."""
    now = left_processes.collect(gpus=_SIZES, machine=machine)
    proven = {removal.removal for removal in now.found} if isinstance(now, Leftovers) else set()
    outcomes = end_processes([removal for removal in map(_removal, leftovers) if removal in proven], machine)
    for leftover in leftovers:
        why = outcomes.get(_removal(leftover), "a second look no longer proves it")
        yield Outcome(leftover, "not removed" if why else "removed", why)


def _removal(leftover: Leftover) -> EndProcess:
    if not isinstance(leftover.removal, EndProcess):
        raise TypeError(f"{type(leftover.removal).__name__} does not end a process")
    return leftover.removal
