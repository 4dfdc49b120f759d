"""A smoke test leaves no hidden processes, shared memory or folder, even if processes are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.smoke import folder as smoke_folder
from verl_doctor.toolkit.commands.smoke.folder import MARK, NOTE, clear_dead, long_as, private_folder
from verl_doctor.toolkit.commands.smoke.traces import Traces, remove_noted
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import row_of

HOLDS = """
import mmap, os, sys, time
held = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.ftruncate(held, 4096)
area = mmap.mmap(held, 4096)
os.close(held)
print("holds", flush=True)
time.sleep(600)
"""
# Represents the doctor: it creates a folder, starts a process that escapes, and waits.
DOCTOR = """
import os, subprocess, sys, time
from verl_doctor.toolkit.commands.smoke import folder as smoke_folder
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.commands.smoke.folder import MARK, private_folder
smoke_folder._PLACES = tuple(sys.argv[1:]) or smoke_folder._PLACES
with private_folder(Machine()) as folder:
    env = {**os.environ, MARK: str(folder)}
    child = subprocess.Popen(["sleep", "600"], env=env, start_new_session=True, stdout=subprocess.DEVNULL)
    print(folder, child.pid, flush=True)
    time.sleep(600)
"""


def waited(question: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not question() and time.monotonic() < deadline:
        time.sleep(0.05)
    return question()


def gone(pid: int) -> bool:
    row = row_of(pid, Machine())
    return row is None or row.state in "ZX"


@pytest.fixture
def segment() -> Iterator[Path]:
    """A name that a segment of vLLM's could have."""
    path = Path(f"/dev/shm/psm_{os.getpid():08x}")
    yield path
    path.unlink(missing_ok=True)


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


@pytest.mark.parametrize("ours", [True, False])
def test_segment_is_removed_if_a_process_of_the_test_held_it(
    ours: bool, segment: Path, tmp_path: Path
) -> None:
    traces = Traces(tmp_path / NOTE, Machine())
    with holder(segment) as process:
        row = row_of(process.pid, Machine())
        assert row is not None
        traces.look({(row.pid, row.ticks)} if ours else ())
        process.kill()
    remove_noted(tmp_path / NOTE)
    assert segment.exists() is not ours


def test_older_segment_is_left_alone(segment: Path, tmp_path: Path) -> None:
    with holder(segment) as process:
        os.utime(segment)
        traces = Traces(tmp_path / NOTE, Machine())
        traces._begun = time.time() + 5
        row = row_of(process.pid, Machine())
        assert row is not None
        traces.look({(row.pid, row.ticks)})
        process.kill()
    remove_noted(tmp_path / NOTE)
    assert segment.exists()


def test_other_file_of_the_same_name_is_left_alone(segment: Path, tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(f'{{"path": "{segment}", "device": 1, "inode": 1}}\nhalf a li')
    segment.touch()
    remove_noted(tmp_path / NOTE)
    assert segment.exists()


def test_note_about_an_unexpected_file_is_ignored(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years")
    about = thesis.stat()
    (tmp_path / NOTE).write_text(
        f'{{"path": "{thesis}", "device": {about.st_dev}, "inode": {about.st_ino}}}\n'
    )
    remove_noted(tmp_path / NOTE)
    assert thesis.exists()


@pytest.mark.slow
def test_exit_ends_marked_processes_and_removes_the_folder() -> None:
    with private_folder(Machine()) as folder:
        environ = {**os.environ, MARK: str(folder)}
        child = subprocess.Popen(["sleep", "600"], env=environ, start_new_session=True)
        other = subprocess.Popen(["sleep", "600"], start_new_session=True)
        bash = ["bash", "-c", f"sleep 600; : {folder}/ray/session"]
        named = subprocess.Popen(bash, env={}, start_new_session=True)
        (folder / "log").touch()
        reader = subprocess.Popen(["tail", "-f", f"{folder}/log"], stderr=subprocess.DEVNULL)
    try:
        assert child.wait(300) == named.wait(300) == -signal.SIGTERM
        assert other.poll() is None
        assert reader.poll() is None, "somebody who reads along"
        assert not folder.exists()
        assert len(str(folder)) < 40, "the sockets of Ray lie 68 characters below it, and have room for 107"
    finally:
        for process in (other, reader):
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_keeper_cleans_up_after_a_killed_doctor(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DOCTOR], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as doctor:
        assert doctor.stdout is not None
        folder, pid = doctor.stdout.readline().split()
        doctor.send_signal(number)
        doctor.wait(300)
    assert waited(lambda: gone(int(pid)) and not Path(folder).exists())


@pytest.mark.slow
def test_next_test_cleans_up_after_a_killed_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a private place: any other smoke test on this machine would count as the next one."""
    monkeypatch.setattr(smoke_folder, "_PLACES", (str(tmp_path),))
    with subprocess.Popen(
        [sys.executable, "-c", DOCTOR, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as doctor:
        assert doctor.stdout is not None
        folder, pid = doctor.stdout.readline().split()
        clear_dead(Machine())
        assert Path(folder).exists(), "its doctor lives"
        [keeper] = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if b"smoke.folder import keep" in (text := _read(path)) and folder.encode() in text
        ]
        os.kill(keeper, signal.SIGKILL)
        assert waited(lambda: gone(keeper))
        doctor.kill()
        doctor.wait(300)
    assert not gone(int(pid))
    clear_dead(Machine())
    assert gone(int(pid))
    assert not Path(folder).exists()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(("length", "same"), [(5, False), (80, True), (150, True)])
def test_folder_path_is_as_long_as_that_of_the_job(length: int, same: bool, tmp_path: Path) -> None:
    private = tmp_path / "p"
    private.mkdir()
    made = long_as(private, {"TMPDIR": "/" + "y" * (length + len(str(private)) - 1)}, "RAY_TMPDIR", "TMPDIR")
    assert (len(str(made)) == min(200, length + len(str(private)))) is (same or length > 1)
    assert made.is_dir()
    assert long_as(private, {}, "TMPDIR") == private
