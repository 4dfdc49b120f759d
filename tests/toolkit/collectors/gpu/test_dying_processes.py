"""Processes that were killed and hang, in recorded tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.gpu.dying_processes import DyingProcesses, dying_processes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

KILLED, CALM = "0000000000000100", "0000000000000000"


def recorded(root: Path, state: str, threads: int, pending: str) -> Machine:
    """A container with one process."""
    (root / "proc" / "7").mkdir(parents=True)
    (root / "proc" / "7" / "status").write_text(
        f"Name:\tVLLM::EngineCor\nState:\t{state}\nThreads:\t{threads}\nSigPnd:\t{CALM}\nShdPnd:\t{pending}\n"
    )
    return Machine(environ={}, root=root)


@pytest.mark.parametrize(
    ("state", "threads", "pending", "hangs"),
    [
        ("D (disk sleep)", 4, KILLED, True),
        ("D (disk sleep)", 4, CALM, False),
        ("Z (zombie)", 3, CALM, True),
        ("Z (zombie)", 1, CALM, False),
        ("S (sleeping)", 4, KILLED, False),
    ],
)
def test_dying_processes_are_detected(
    tmp_path: Path, state: str, threads: int, pending: str, hangs: bool
) -> None:
    found = dying_processes.collect(recorded(tmp_path, state, threads, pending))
    assert found == DyingProcesses(("VLLM::EngineCor (process 7)",) if hangs else (), all_seen=False)


def test_only_the_initial_pid_namespace_sees_all_processes(tmp_path: Path) -> None:
    machine = recorded(tmp_path, "S (sleeping)", 1, CALM)
    (tmp_path / "proc" / "self" / "ns").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    assert dying_processes.collect(machine) == DyingProcesses(all_seen=False)  # /proc hides process 1
    (tmp_path / "proc" / "1").mkdir()
    (tmp_path / "proc" / "1" / "stat").touch()
    assert dying_processes.collect(machine) == DyingProcesses(all_seen=True)


def test_unreadable_process_table_is_unknown(tmp_path: Path) -> None:
    assert isinstance(dying_processes.collect(Machine(root=tmp_path)), Unknown)
