"""How much processor time the threads of processes need, on a machine under any load.

On a busy machine a working thread gets little time, and threads that wait forever wake up now and then and
wait in the same queue. The kernel counts for each how long it ran and how long it waited for a processor
(`/proc/PID/task/TID/schedstat`). The sum is its demand, which is the full time for a thread that works.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping

from verl_doctor.toolkit.machine import Machine

_NANO = 1e9


def wanted_seconds(pids: Iterable[int], machine: Machine) -> Mapping[int, float]:
    """Return the seconds that each thread of these processes has run or waited for a processor.

    The result is empty if they are unavailable.
    """
    return {
        thread: _of_thread(f"/proc/{pid}/task/{thread}", machine)
        for pid in pids
        for thread in _threads(pid, machine)
    }


def _threads(pid: int, machine: Machine) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(machine.at(f"/proc/{pid}/task"))]  # noqa: PTH208 - names alone
    return []


def _of_thread(folder: str, machine: Machine) -> float:
    ran, waited, *_ = [*(machine.read(f"{folder}/schedstat") or "").split(), "0", "0"]
    return (int(ran) + int(waited)) / _NANO
