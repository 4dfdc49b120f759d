"""Memory and the kernel's overcommit policy: /proc/meminfo (proc_meminfo(5)), vm.overcommit_memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.machine import Machine

_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class HostMemory:
    """Bytes, None if the kernel does not report them.

    `total` and `available` are the machine's, whatever a control group allows.

    `overcommit` is vm.overcommit_memory: 0 guesses, 1 always promises, 2 promises no more than
    `commit_limit`, of which `committed` is taken.
    """

    total: int | None
    available: int | None = None
    overcommit: int | None = None
    commit_limit: int | None = None
    committed: int | None = None


@collector()
def memory(machine: Machine) -> HostMemory | Absent:
    """Read the kernel's memory figures."""
    text = machine.read("/proc/meminfo")
    if text is None:
        return Absent("this system has no /proc/meminfo")
    amounts = {name: int(kilobytes) * 1024 for name, kilobytes in _LINE.findall(text)}
    overcommit = (machine.read("/proc/sys/vm/overcommit_memory") or "").strip()
    return HostMemory(
        amounts.get("MemTotal"),
        amounts.get("MemAvailable"),
        int(overcommit) if overcommit.isdigit() else None,
        amounts.get("CommitLimit"),
        amounts.get("Committed_AS"),
    )
