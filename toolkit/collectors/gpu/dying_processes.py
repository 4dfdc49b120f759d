"""Killed processes that cannot end, which may hold GPU memory without a visible holder.

It also covers whether any may be hidden.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import numbers, sees_all

_NAME = re.compile(r"^Name:\t(.*)$", re.MULTILINE)
_STATE = re.compile(r"^State:\t(\w)", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\t(\d+)", re.MULTILINE)
_PENDING = re.compile(r"^(?:SigPnd|ShdPnd):\t([0-9a-f]+)", re.MULTILINE)
_KILL = 1 << 8  # signal 9 in a mask that counts from 1


@dataclass(frozen=True)
class DyingProcesses:
    """Names and numbers of processes that were killed and are blocked in the kernel.

    `all_seen`: no process of this machine is hidden from here.
    """

    dying: tuple[str, ...] = ()
    all_seen: bool = False


@collector()
def dying_processes(machine: Machine) -> DyingProcesses | Unknown:
    """Find processes whose first thread alone has ended, and blocked processes with a pending SIGKILL."""
    listed = numbers(machine)
    if isinstance(listed, Unknown):
        return listed
    found = []
    for pid in listed:
        status = machine.read(f"/proc/{pid}/status") or ""
        name, state = _NAME.search(status), _STATE.search(status)
        if name and state and _hangs(state[1], status):
            found.append(f"{name[1]} (process {pid})")
    return DyingProcesses(tuple(found), sees_all(machine))


def _hangs(state: str, status: str) -> bool:
    threads = _THREADS.search(status)
    if state == "Z":
        return threads is not None and int(threads[1]) > 1
    return state == "D" and any(int(mask, 16) & _KILL for mask in _PENDING.findall(status))
