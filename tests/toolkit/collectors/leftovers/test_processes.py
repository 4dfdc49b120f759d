"""Processes of jobs that were killed, real ones under the names that engines and trainers have."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.orphaned import ENGINE, Reaper, reaper

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.leftovers import orphans
from verl_doctor.toolkit.collectors.leftovers.processes import LeftProcesses, left_processes
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.leftover import EndProcess
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import process_activity
from verl_doctor.toolkit.system.end_processes import end_processes

NO_GPU = Absent("there is no NVIDIA GPU here")


@pytest.fixture
def tini(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reaper]:
    """The first process of a container, in which processes count as old at once."""
    monkeypatch.setattr(orphans, "YOUNG", 0.0)
    monkeypatch.setattr(process_activity, "WINDOW", 0.05)
    with reaper() as one:
        yield one


def look(gpus: Gpus | Unknown = NO_GPU) -> LeftProcesses:
    """The fact, of this machine."""
    found = left_processes.collect(gpus=gpus, machine=Machine())
    assert isinstance(found, LeftProcesses)
    return found


def numbers(found: LeftProcesses, among: list[int]) -> list[int]:
    """Leftovers among these processes. Other jobs of this machine are ignored."""
    removals = [leftover.removal for leftover in found.found]
    return [removal.pid for removal in removals if isinstance(removal, EndProcess) and removal.pid in among]


def test_running_job_is_untouched_and_killed_job_is_reported(tini: Reaper) -> None:
    _, running = tini.job(ENGINE, ENGINE)
    dead, left = tini.job(ENGINE, "VLLM::Worker_TP0", "sglang::scheduler")
    assert numbers(look(), running + left) == []
    tini.kill(dead)
    found = look()
    assert numbers(found, running + left) == sorted(left)
    (one,) = [
        leftover for leftover in found.found if leftover.name == f"VLLM::EngineCore (process {left[0]})"
    ]
    assert one.proof[:2] == (
        f"the process that started it has ended, and tini (process {tini.process.pid}) adopted it",
        "no running process is at the other end of its pipes and sockets, or shares memory with it",
    )
    assert (one.size or 0) > 0
    assert one.store == "memory"
    removals = [
        of.removal for of in found.found if isinstance(of.removal, EndProcess) and of.removal.pid in left
    ]
    assert set(end_processes(removals, Machine()).values()) == {""}
    assert numbers(look(), running + left) == []


@pytest.mark.slow
def test_size_is_the_gpu_memory(tini: Reaper) -> None:
    dead, (left,) = tini.job(ENGINE)
    tini.kill(dead)
    gpus = Gpus((Device(0, holders=(Holder(left, 1024),)), Device(1, holders=(Holder(left, 512),))))
    (one,) = [leftover for leftover in look(gpus).found if f"(process {left})" in leftover.name]
    assert (one.size, one.store) == (1536 * 1024**2, "GPU memory")


def test_recently_started_process_is_kept(tini: Reaper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "YOUNG", 3600.0)
    dead, (left,) = tini.job(ENGINE)
    tini.kill(dead)
    (one,) = [leftover for leftover in look().kept if f"(process {left})" in leftover.name]
    assert one.why == "it started less than a minute ago"


@pytest.mark.slow
@pytest.mark.parametrize("answers", [True, False])
def test_ray_agent_is_a_leftover_if_its_session_is_dead(tini: Reaper, answers: bool) -> None:
    with TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as raylet:
        session = Path(short, "session_2026-11-21_10-00-00_000000_1")
        (session / "sockets").mkdir(parents=True)
        raylet.bind(str(session / "sockets" / "raylet"))
        if answers:
            raylet.listen()
        (session / "agent.log").touch()
        dead, (agent,) = tini.job("ray::DashboardAgent", trainer="raylet", log=str(session / "agent.log"))
        tini.kill(dead)
        found = look()
        assert numbers(found, [agent]) == ([] if answers else [agent])
        assert not [leftover for leftover in found.kept if f"(process {agent})" in leftover.name]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["", "raylet --session-name=session_2026-11-21_10-00-00_000000_2"])
def test_removed_session_folder(tini: Reaper, tmp_path: Path, server: str) -> None:
    """Maybe under a Ray that runs: then its server names the session."""
    log = tmp_path / "session_2026-11-21_10-00-00_000000_2" / "agent.log"
    log.parent.mkdir()
    log.touch()
    dead, (agent,) = tini.job("ray::DashboardAgent", trainer="raylet", log=str(log))
    tini.kill(dead)
    log.unlink()
    log.parent.rmdir()
    if server:
        tini.job(trainer=server)
    assert numbers(look(), [agent]) == ([] if server else [agent])


@pytest.mark.slow
def test_ray_agent_with_an_unknown_session_is_kept(tini: Reaper) -> None:
    dead, (agent,) = tini.job("ray::DashboardAgent", trainer="raylet")
    tini.kill(dead)
    (one,) = [leftover for leftover in look().kept if f"(process {agent})" in leftover.name]
    assert one.why == "it cannot be determined to which Ray it belongs"


def test_recorded_machine_has_no_live_processes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert isinstance(left_processes.collect(NO_GPU, Machine(root=tmp_path)), Unknown)
    (tmp_path / "proc" / "stat").write_text("btime 1000000\n")
    assert isinstance(left_processes.collect(NO_GPU, Machine(root=tmp_path)), Absent)
