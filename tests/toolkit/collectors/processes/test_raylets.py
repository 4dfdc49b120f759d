"""What is read from running raylets, and what never is."""

from __future__ import annotations

import time
from pathlib import Path

from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.collectors.processes.raylets import Raylets, raylets
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

COMMAND = (
    "/env/ray/raylet\0--raylet_socket_name=/t/s\0--node_ip_address=10.0.0.7\0"
    "--gcs-address=10.0.0.1:6379\0--session-name=session_2026-11-21_10-00-00_1\0"
    "--python_worker_command=/env/bin/python default_worker.py --redis-password=hunter2"
)


def process(pid: int, *, mine: bool = True, started: float = 0.0) -> Process:
    return Process(pid, 1, "raylet", "/env/ray/raylet", mine, started)


def look(root: Path, *running: Process, **environ: str) -> Raylets | Unknown:
    """As if each process had this environment."""
    for each in running:
        folder = root / "proc" / str(each.pid)
        folder.mkdir(parents=True)
        folder.joinpath("cmdline").write_text(COMMAND)
        folder.joinpath("environ").write_text("".join(f"{name}={value}\0" for name, value in environ.items()))
    return raylets.collect(Processes(running), Machine(environ={}, root=root))


def test_address_and_inherited_variables_of_a_raylet_are_read(tmp_path: Path) -> None:
    found = look(tmp_path, process(7, started=time.time() - 60), NCCL_DEBUG="INFO", MY_DIARY="dear")
    assert isinstance(found, Raylets)
    (raylet,) = found.running
    assert (raylet.pid, raylet.address, raylet.cluster) == (7, "10.0.0.7", "10.0.0.1:6379")
    assert raylet.session == "session_2026-11-21_10-00-00_1"
    assert raylet.variables.values == {"NCCL_DEBUG": "INFO"}
    assert raylet.age >= 60


def test_secrets_of_a_raylet_are_not_read(tmp_path: Path) -> None:
    found = look(tmp_path, process(7), HF_TOKEN="hunter2", https_proxy="http://me:hunter2@proxy:1")
    assert isinstance(found, Raylets)
    assert found.running[0].variables.withheld == ("HF_TOKEN",)
    assert "hunter2" not in repr(found)


def test_raylet_of_another_user_is_counted_and_not_read(tmp_path: Path) -> None:
    found = look(tmp_path, process(7), process(8, mine=False), PATH="/bin")
    assert isinstance(found, Raylets)
    assert ([raylet.pid for raylet in found.running], found.hidden) == ([7], 1)


def test_ended_or_unreadable_raylet_is_hidden(tmp_path: Path) -> None:
    found = raylets.collect(Processes((process(7),)), Machine(environ={}, root=tmp_path))
    assert found == Raylets(hidden=1)


def test_oldest_raylet_comes_first(tmp_path: Path) -> None:
    found = look(tmp_path, process(7, started=200.0), process(8, started=100.0), PATH="/bin")
    assert isinstance(found, Raylets)
    assert [raylet.pid for raylet in found.running] == [8, 7]


def test_other_processes_are_not_raylets(tmp_path: Path) -> None:
    other = Process(9, 1, "engine", "VLLM::EngineCore", True, 0.0)
    assert isinstance(look(tmp_path, other), Absent)
