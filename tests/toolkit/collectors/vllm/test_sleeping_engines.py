"""Sleeping engines: real processes with an engine's name, whose output goes to a log in three ways."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.vllm.sleeping_engines import SleepingEngines, sleeping_engines
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

ENGINE = "VLLM::EngineCore"
SLEPT = "(EngineCore pid={}) INFO [gpu_worker.py:182] Sleep mode freed 118.3 GiB memory, 15.95 GiB memory is still in use.\n"
WOKE = "(EngineCore pid={}) INFO [abstract.py:346] It took 0.1 seconds to wake up tags None.\n"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sleep` under another name; it ends with the test."""
    with ExitStack() as started:

        def run(title: str, **streams: object) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([title, "600"], executable="/bin/sleep", **streams)  # type: ignore[call-overload]
            started.callback(process.wait)
            started.callback(process.kill)
            return process  # type: ignore[no-any-return]

        yield run


def look(*holders: Holder) -> SleepingEngines | Unknown:
    """The fact, of a machine with one GPU of 140 GiB with these processes on it."""
    used = sum(holder.memory or 0 for holder in holders) + 100
    memory = Memory(143771, used, 143155 - used, 616)
    gpus = Gpus((Device(0, memory=memory, holders=holders),))
    answer: SleepingEngines | Unknown = sleeping_engines.collect(gpus, Machine())
    return answer


def engine(pid: int) -> Holder:
    """One that has 2,600 MiB of the GPU."""
    return Holder(pid, 2_600, "engine", ENGINE, mine=True)


@pytest.mark.slow
def test_sleeping_engine_and_other_holders_are_reported(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "run").open("w") as log:
        pid = start(ENGINE, stdout=log).pid
    trainer = Holder(1, 12_000, "ray worker", "ray::WorkerDict")
    (tmp_path / "run").write_text(SLEPT.format(pid))
    found = look(engine(pid), trainer)
    assert isinstance(found, SleepingEngines)
    (one,) = found.engines
    assert (one.pid, one.gpu, one.held, one.others, one.nobody) == (pid, 0, 2_600, (trainer,), 100)
    assert (one.log.freed, one.log.in_use, one.path) == (118.3, 15.95, str(tmp_path / "run"))
    (tmp_path / "run").write_text(SLEPT.format(pid) + WOKE.format(pid))
    assert look(engine(pid), trainer) == SleepingEngines()


def test_log_written_by_another_program_is_read(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        reading, writing = os.pipe()
        start("tee", stdin=reading, stdout=log)
        pid = start(ENGINE, stdout=writing).pid
        os.close(reading)
        os.close(writing)
    (tmp_path / "log").write_text(SLEPT.format(pid))
    found = look(engine(pid))
    assert isinstance(found, SleepingEngines)
    assert [engine.path for engine in found.engines] == [str(tmp_path / "log")]


@pytest.mark.slow
def test_long_log_is_read_at_both_ends(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "run").open("w") as log:
        pid = start(ENGINE, stdout=log).pid
    weights = "INFO Model loading took 14.25 GiB memory and 3.1 seconds\n"
    (tmp_path / "run").write_text(weights + "x" * 80 * 150_000 + "\n" + SLEPT.format(pid))
    found = look(engine(pid))
    assert isinstance(found, SleepingEngines)
    assert [(engine.log.weights, engine.log.freed) for engine in found.engines] == [(14.25, 118.3)]


def test_missing_log_leaves_the_state_unknown(start: Start) -> None:
    pid = start(ENGINE, stdout=subprocess.DEVNULL).pid
    assert look(engine(pid)) == Unknown(
        f"it is unknown whether they sleep: no log was found of {ENGINE} (process {pid})"
    )


def test_no_engine_is_absent() -> None:
    assert isinstance(look(Holder(1, 5_000, "", "python")), Absent)
