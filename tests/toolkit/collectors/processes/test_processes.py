"""The processes of jobs in the table of this machine, and in recorded ones."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from verl_doctor.toolkit.collectors.processes.processes import Processes, processes, role_of
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/env/ray/core/src/ray/raylet/raylet --raylet_socket_name=/t/s", "raylet"),
        ("raylet", "raylet"),
        ("/env/ray/core/src/ray/gcs/gcs_server --log_dir=/t", "gcs_server"),
        ("ray::DashboardAgent", "ray agent"),
        ("ray::RuntimeEnvAgent", "ray agent"),
        ("/env/bin/python -u /env/ray/_private/log_monitor.py --session-dir=/t", "ray agent"),
        ("/env/bin/python -u /env/ray/autoscaler/_private/monitor.py --logs-dir=/t", "ray agent"),
        ("/env/bin/python /env/ray/dashboard/dashboard.py --host=127.0.0.1", "ray agent"),
        ("ray::IDLE", "ray worker"),
        ("ray::WorkerDict.actor_rollout_generate_sequences", "ray worker"),
        ("VLLM::EngineCore", "engine"),
        ("sglang::scheduler_TP0", "engine"),
        ("rollout-7::EngineCore_DP0", "engine"),
        ("std::vector", None),
        ("python3 -m verl.trainer.main_ppo trainer.nnodes=1", "trainer"),
        ("/usr/bin/python3.12 -u verl/trainer/main_ppo.py a.b=c", "trainer"),
        ("/env/bin/python3 -m verl.trainer.fsdp_sft_trainer data.x=1", "trainer"),
        ("/env/bin/python3 -m recipe.dapo.main_dapo data.x=1", "trainer"),
        ("python -m verl.trainer.main_ppo", "trainer"),
        ("vim verl/trainer/main_ppo.py", None),
        ("bash -c python -m verl.trainer.main_ppo", None),
        ("grep raylet", None),
        ("/env/bin/python -m verl.trainer.maintenance", None),
        ("/env/bin/python /home/me/ray/tune.py", None),
        ("", None),
    ],
)
def test_role_is_recognised_by_the_command_line(command: str, role: str | None) -> None:
    assert role_of(command) == role


def recorded(root: Path, pid: int, command: str, *, user: int | None = None, name: str = "x") -> Machine:
    """One process of a machine that was booted at 1,000,000."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    effective = os.geteuid() if user is None else user
    folder.joinpath("cmdline").write_text(command)
    folder.joinpath("status").write_text(f"Name:\t{name}\nUid:\t0\t{effective}\t0\t0\n")
    ticks = 5 * os.sysconf("SC_CLK_TCK")
    folder.joinpath("stat").write_text(f"{pid} ({name}) S 42 " + "0 " * 17 + f"{ticks} 0 0\n")
    (root / "proc" / "stat").write_text("cpu 1 2\nbtime 1000000\n")
    return Machine(environ={}, root=root)


def test_recorded_machine(tmp_path: Path) -> None:
    machine = recorded(tmp_path, 7, "/env/raylet\0--a=secret\0", name="odd) name (S 1")
    recorded(tmp_path, 8, "ray::IDLE\0\0\0\0\0", user=os.geteuid() + 1)
    recorded(tmp_path, 9, "/bin/sleep\0600")
    found = processes.collect(machine)
    assert isinstance(found, Processes)
    raylet, worker = found.running
    assert (raylet.pid, raylet.parent, raylet.title, raylet.mine, raylet.started) == (
        7,
        42,
        "/env/raylet",
        True,
        1_000_005.0,
    )
    assert (worker.role, worker.title, worker.mine) == ("ray worker", "ray::IDLE", False)
    assert found.of("raylet") == (raylet,)


def test_process_that_ended_during_the_scan_is_left_out(tmp_path: Path) -> None:
    machine = recorded(tmp_path, 7, "raylet")
    (tmp_path / "proc" / "7" / "stat").unlink()
    assert processes.collect(machine) == Processes()


def test_missing_process_table(tmp_path: Path) -> None:
    assert isinstance(processes.collect(Machine(environ={}, root=tmp_path)), Unknown)


def test_real_process_is_listed() -> None:
    with subprocess.Popen(["raylet", "1000"], executable="/bin/sleep") as child:
        try:
            while not Path(f"/proc/{child.pid}/cmdline").read_bytes():
                time.sleep(0.001)  # Popen returns a moment before Linux has put the words there
            found = processes.collect(Machine())
            assert isinstance(found, Processes)
            (mine,) = [process for process in found.running if process.pid == child.pid]
            assert (mine.role, mine.title, mine.mine, mine.parent) == ("raylet", "raylet", True, os.getpid())
            assert mine.started == pytest.approx(psutil.Process(child.pid).create_time(), abs=2)
        finally:
            child.kill()
