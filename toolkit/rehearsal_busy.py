"""How much processes want to compute, on a machine of any load.

On a busy machine a process that works gets little time, and one that waits for ever takes hardly less. The kernel counts for each thread
how long it ran and how long it waited for a processor (`/proc/PID/task/TID/schedstat`): both together are what it wanted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from verl_doctor.toolkit.machine import Machine

_NANO = 1e9


def wanted_seconds(pids: Iterable[int], machine: Machine) -> float:
    """Seconds that the threads of these processes have run or waited for a processor since they began; 0 where it is not told."""
    return sum(
        _of_thread(f"/proc/{pid}/task/{thread}", machine) for pid in pids for thread in _threads(pid, machine)
    )


def _threads(pid: int, machine: Machine) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(machine.at(f"/proc/{pid}/task"))  # noqa: PTH208 - names alone
    return []


def _of_thread(folder: str, machine: Machine) -> float:
    ran, waited, *_ = [*(machine.read(f"{folder}/schedstat") or "").split(), "0", "0"]
    return (int(ran) + int(waited)) / _NANO
