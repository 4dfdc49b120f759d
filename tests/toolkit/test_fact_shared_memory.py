"""Shared memory: its size, and what nobody holds any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import recorded

from verl_doctor.toolkit.fact_shared_memory import SharedMemory, shared_memory
from verl_doctor.toolkit.facts import Absent


def test_a_system_without_it(tmp_path: Path) -> None:
    assert isinstance(shared_memory.collect(recorded(tmp_path, {})), Absent)


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    class Space:
        f_blocks, f_bavail, f_frsize = 100, 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda _: Space())


def test_segments_that_nobody_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full(monkeypatch)
    shm = {f"/dev/shm/{name}": "x" * 5000 for name in ("nccl-abc", "psm_1", "psm_2", "sem.mp-1", "mine")}
    mapped = "7f00-7f01 rw-s 00000000 00:1b 7 /dev/shm/psm_1\n"
    machine = recorded(tmp_path, {**shm, "/proc/9/maps": mapped, "/proc/meminfo": ""})
    tmp_path.joinpath("proc/9/fd").mkdir()
    tmp_path.joinpath("proc/9/fd/3").symlink_to("/dev/shm/sem.mp-1")
    found = shared_memory.collect(machine)
    assert found == SharedMemory(409600, 40960, 2, 2 * 8192)


def test_nobody_looks_while_there_is_room(tmp_path: Path) -> None:
    found = shared_memory.collect(recorded(tmp_path, {"/dev/shm/psm_1": ""}))
    assert isinstance(found, SharedMemory)
    assert (found.stale is None) == (found.free >= found.size / 2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system")
def test_dockers_64_megabytes_with_a_real_leftover() -> None:
    """In a mount namespace: one segment of a process that lives, one of a process that was killed."""
    program = f"""
import sys, subprocess; sys.path.insert(0, {str(Path(__file__).parents[2] / ".dev")!r})
from multiprocessing.shared_memory import SharedMemory
from verl_doctor.toolkit.fact_shared_memory import shared_memory
from verl_doctor.toolkit.machine import Machine
held = SharedMemory(create=True, size=30 << 20); held.buf[:] = bytes(30 << 20)
code = "import os; from multiprocessing.shared_memory import SharedMemory as S; s = S(create=True, size=8 << 20); s.buf[:] = bytes(8 << 20); os.kill(0, 9)"
subprocess.run(["setsid", "-w", sys.executable, "-c", code])
found = shared_memory.collect(Machine())
held.unlink()
print(found.size >> 20, found.free >> 20, found.stale, (found.stale_bytes or 0) >> 20)
"""
    mount = f"mount -t tmpfs -o size=64m none /dev/shm && exec {sys.executable} - "
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount], input=program, capture_output=True, text=True, check=False
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split() == ["64", "26", "1", "8"], done.stderr
