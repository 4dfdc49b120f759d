"""Shared memory: its size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import recorded

from verl_doctor.toolkit.fact_shared_memory import shared_memory
from verl_doctor.toolkit.facts import Absent


def test_a_system_without_it(tmp_path: Path) -> None:
    assert isinstance(shared_memory.collect(recorded(tmp_path, {})), Absent)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system")
def test_dockers_64_megabytes() -> None:
    """In a mount namespace, with a segment in it."""
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / ".dev")!r})
from multiprocessing.shared_memory import SharedMemory
from verl_doctor.toolkit.fact_shared_memory import shared_memory
from verl_doctor.toolkit.machine import Machine
held = SharedMemory(create=True, size=30 << 20); held.buf[:] = bytes(30 << 20)
found = shared_memory.collect(Machine())
held.unlink()
print(found.size >> 20, found.free >> 20)
"""
    mount = f"mount -t tmpfs -o size=64m none /dev/shm && exec {sys.executable} - "
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount], input=program, capture_output=True, text=True, check=False
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split() == ["64", "34"], done.stderr
