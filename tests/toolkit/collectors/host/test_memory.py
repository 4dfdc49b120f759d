"""Memory as reported by the kernel."""

from __future__ import annotations

from pathlib import Path

from support.recorded import recorded

from verl_doctor.toolkit.collectors.host.memory import HostMemory, memory
from verl_doctor.toolkit.facts import Absent


def test_amounts_in_bytes(tmp_path: Path) -> None:
    machine = recorded(
        tmp_path,
        {
            "/proc/meminfo": "MemTotal:  100 kB\nMemAvailable: 50 kB\nSwapTotal: 0 kB\nCommitLimit: 60 kB\nHugePages_Total: 3\n",
            "/proc/sys/vm/overcommit_memory": "2\n",
        },
    )
    assert memory.collect(machine) == HostMemory(102400, 51200, 2, 61440, None)


def test_missing_proc_is_absent(tmp_path: Path) -> None:
    assert isinstance(memory.collect(recorded(tmp_path, {})), Absent)
