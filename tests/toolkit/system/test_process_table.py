"""The table of processes, and those that are seen in the middle of execve."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.leftovers import processes
from verl_doctor.toolkit.collectors.leftovers.orphans import Orphans
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import process_table
from verl_doctor.toolkit.system.process_table import commands, own_number, settled_command


def shown(
    root: Path, pid: int, cmdline: str = "", environ: str = "", memory: str = "VmSize:\t 9 kB\n"
) -> Path:
    """A process as /proc shows it; one in the middle of execve has memory, and neither command line nor environment."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text(cmdline)
    (folder / "environ").write_text(environ)
    (folder / "status").write_text(f"State:\tR (running)\n{memory}")
    return folder / "cmdline"


def test_process_in_the_middle_of_execve_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = shown(tmp_path, 7)
    monkeypatch.setattr(process_table.time, "sleep", lambda _: command.write_text("raylet\0--a=b\0"))
    machine = Machine(root=tmp_path)
    assert commands(machine) == {}
    assert commands(machine, settled_command) == {7: "raylet --a=b"}


def test_processes_without_a_command_line_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the kernel's or a zombie, and a process that has taken its command line away."""
    shown(tmp_path, 2, memory="")
    shown(tmp_path, 3, environ="A=1\0")
    monkeypatch.delattr(process_table.time, "sleep")
    assert commands(Machine(root=tmp_path), settled_command) == {}


def test_orphans_are_judged_with_settled_command_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A raylet in the middle of execve would not count as the one of its session."""
    tables: list[list[str]] = []

    def read(_: Machine, settled: object = None) -> dict[int, str]:
        return {own_number(): "VLLM::EngineCore", **({1: "raylet"} if settled is settled_command else {})}

    def judged(table: list[process_table.Row], _: object) -> Orphans:
        tables.append([row.command for row in table])
        return Orphans()

    monkeypatch.setattr(processes, "commands", read)
    monkeypatch.setattr(processes, "orphans", judged)
    processes.left_processes.collect(gpus=Unknown("not asked"), machine=Machine())
    assert tables == [["VLLM::EngineCore", "raylet"]]
