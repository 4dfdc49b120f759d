"""Processes that hold a GPU; a file represents its device."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.gpu import holders
from verl_doctor.toolkit.collectors.gpu.holders import holders_of, openers


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process called like vLLM's engine that has the device open."""
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(holders, "_A_GPU", re.compile(re.escape(str(device))))
    script = 'exec -a "VLLM::EngineCore secret" sleep 60 9<"$0"'
    process = subprocess.Popen(["bash", "-c", script, str(device)])
    try:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"VLLM"):
            time.sleep(0.005)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_holders_and_their_relation_to_a_job_are_reported(engine: int) -> None:
    (holder,) = holders_of([[engine, 3 << 30]])
    assert (holder.pid, holder.memory, holder.role) == (engine, 3072, "engine")
    assert (holder.title, holder.mine, holder.seen) == ("VLLM::EngineCore", True, True)  # no arguments


def test_process_without_an_open_gpu_belongs_to_another_container(
    engine: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "_A_GPU", re.compile("/dev/nvidia0"))
    (holder,) = holders_of([[engine, 3 << 30]])
    assert (holder.memory, holder.seen, holder.role) == (3072, False, "")


def test_ended_process_is_reported_as_not_visible(engine: int) -> None:
    (holder,) = holders_of([[(1 << 31) - 1, None]])
    assert (holder.memory, holder.seen) == (None, False)


def test_processes_with_an_open_gpu_are_found_without_nvml(engine: int) -> None:
    assert [holder.pid for holder in openers()] == [engine]
