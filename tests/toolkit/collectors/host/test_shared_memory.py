"""Shared memory: its size."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.places import ROOT
from support.recorded import recorded

from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory, shared_memory
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import file_systems


def test_missing_shm_is_absent(tmp_path: Path) -> None:
    assert isinstance(shared_memory.collect(recorded(tmp_path, {})), Absent)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system")
def test_docker_default_of_64_megabytes() -> None:
    """In a mount namespace, with a segment in it."""
    program = f"""
import sys; sys.path.insert(0, {str(ROOT / ".dev")!r})
from multiprocessing.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.host.shared_memory import shared_memory
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


def test_write_test_leaves_no_file(tmp_path: Path) -> None:
    shm = tmp_path / "dev/shm"
    shm.mkdir(parents=True)
    before = shm.stat()
    found = shared_memory.collect(Machine(root=tmp_path))
    assert isinstance(found, SharedMemory)
    assert found.refused == ""
    assert list(shm.iterdir()) == []
    assert shm.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("number", "why"),
    [(errno.EROFS, "Read-only file system"), (errno.EACCES, "Permission denied"), (errno.EOPNOTSUPP, "")],
)
def test_reason_for_a_failed_write_test_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    opened = os.open

    def refuse(path: Path, *given: int) -> int:
        if path == tmp_path:
            raise OSError(number, os.strerror(number))
        return opened(path, *given)

    monkeypatch.setattr(os, "open", refuse)
    found = file_systems.why_refused(tmp_path), file_systems.may_write(tmp_path)
    monkeypatch.undo()
    assert found == (why, not why)
