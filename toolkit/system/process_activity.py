"""Measures what processes do during a window: their threads' processor time, and reads and writes."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass

from verl_doctor.toolkit.machine import Machine

WINDOW = 2.0  # seconds


@dataclass(frozen=True)
class Activity:
    """The activity of one process in a window.

    `processor` is in seconds; `hidden` means that it may not be inspected.
    """

    processor: float = 0.0
    threads: bool = False
    transfers: bool = False
    hidden: bool = False

    @property
    def none(self) -> bool:
        """Whether it did nothing at all."""
        return self == Activity()


@dataclass(frozen=True)
class _Sample:
    threads: dict[str, int]  # nanoseconds, or context switches if the kernel keeps no times
    transfers: str


def watch(pids: Collection[int], machine: Machine, window: float | None = None) -> dict[int, Activity]:
    """Sample these processes, and again after a while (`WINDOW` seconds).

    One that ends meanwhile counts as idle.
    """
    if not pids:
        return {}
    before = {pid: _sample(pid, machine) for pid in pids}
    time.sleep(WINDOW if window is None else window)
    return {pid: _between(before[pid], _sample(pid, machine), pid, machine) for pid in pids}


def _between(before: _Sample | None, after: _Sample | None, pid: int, machine: Machine) -> Activity:
    if before is None or after is None:
        return Activity(hidden=os.path.exists(machine.at(f"/proc/{pid}")))
    ran = sum(max(after.threads.get(task, 0) - spent, 0) for task, spent in before.threads.items())
    ran += sum(spent for task, spent in after.threads.items() if task not in before.threads)
    return Activity(
        ran / 10**9,
        threads=before.threads.keys() != after.threads.keys(),
        transfers=before.transfers != after.transfers,
    )


def _sample(pid: int, machine: Machine) -> _Sample | None:
    transfers = machine.read(f"/proc/{pid}/io")
    try:
        tasks = os.listdir(machine.at(f"/proc/{pid}/task"))  # noqa: PTH208 - names alone
    except OSError:
        return None
    spent = {task: _spent(f"/proc/{pid}/task/{task}", machine) for task in tasks}
    return None if transfers is None or None in spent.values() else _Sample(spent, transfers)  # type: ignore[arg-type]


def _spent(task: str, machine: Machine) -> int | None:
    """Return a thread's processor time in nanoseconds.

    If the kernel keeps none, its number of runs, each counted as a millisecond.
    """
    words = (machine.read(f"{task}/schedstat") or "").split()
    if words and words[0] != "0":
        return int(words[0])
    lines = (machine.read(f"{task}/status") or "").splitlines()
    switches = [int(line.split()[1]) for line in lines if "ctxt_switches:" in line]
    return sum(switches) * 10**6 if switches else None
