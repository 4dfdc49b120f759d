"""`clean --run`: the job keeps its output, signals and exit code, and only its own leftovers are shown."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.running import JobStarted, inside, job_started
from support.schemas import validate

from verl_doctor.toolkit.commands.clean.job import MARK, Traces
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.machine import Machine

# It leaves a spill folder, a segment that is never unlinked, and a daemon; and records each SIGINT and SIGTERM.
_JOB = """
import os, pathlib, signal, subprocess, sys, time
from multiprocessing import resource_tracker, shared_memory
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.write(1, f"got {number}\\n".encode()))  # print() may be under way
segment = shared_memory.SharedMemory(create=True, size=5_000)
resource_tracker.unregister(segment._name, "shared_memory")
spill = pathlib.Path(f"/tmp/verl_spill_{os.getpid()}")
spill.mkdir()
(spill / "ray_spilled_objects_1").write_bytes(bytes(1000))
daemon = subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(os.getpid(), segment.name, daemon.pid, flush=True)
time.sleep(1.2)
sys.exit(7)
"""


@dataclass(frozen=True)
class Job:
    """A job run through the doctor, and what it reported about itself."""

    run: JobStarted
    pid: int
    segment: str
    daemon: int


@contextlib.contextmanager
def started(tmp_path: Path, terminal: int | None = None) -> Iterator[Job]:
    """Run the job, and remove its leftovers."""
    script = tmp_path / "job.py"
    script.write_text(_JOB)
    with job_started(tmp_path, [sys.executable, script], terminal) as run:
        job = Job(run, int(run.ready[0]), run.ready[1], int(run.ready[2]))
        try:
            yield job
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.daemon, 9)
            Path("/dev/shm", job.segment).unlink(missing_ok=True)
            shutil.rmtree(f"/tmp/verl_spill_{job.pid}", ignore_errors=True)


@pytest.mark.slow
def test_only_leftovers_of_the_job_are_listed(tmp_path):
    stranger = Path(f"/tmp/verl_spill_{os.getpid()}")
    with started(tmp_path) as job:
        stranger.mkdir()
        try:
            code, output, report = job.run.ended()
        finally:
            stranger.rmdir()
        validate(report, schema_text("clean"))
        left = {entry["name"] for entry in report["leftovers"]}
        kept = {entry["name"] for entry in report["kept"]}
        assert left | kept == {
            f"/tmp/verl_spill_{job.pid}",
            f"/dev/shm/{job.segment}",
            f"sleep (process {job.daemon})",
        }
        assert f"sleep (process {job.daemon})" in kept
        assert str(stranger) in {entry["name"] for entry in report["run"]["appeared"]}
        assert (code, output) == (7, "")
        assert (report["run"]["exit_code"], report["run"]["signal"]) == (7, None)
        kinds = {total["kind"]: total["number"] for total in report["run"]["after"]}
        assert kinds["spill folder"] >= 2


@pytest.mark.slow
def test_signal_to_the_doctor_is_forwarded_once(tmp_path):
    with started(tmp_path) as job:
        job.run.process.terminate()
        code, output, _ = job.run.ended()
        assert (code, output) == (7, "got 15\n")


@pytest.mark.slow
def test_ctrl_c_reaches_the_job_once(tmp_path):
    """The terminal sends it to the whole process group: the doctor continues and does not forward it."""
    mine, its = pty.openpty()
    try:
        with started(tmp_path, its) as job:
            os.write(mine, b"\x03")
            code, output, report = job.run.ended()
            assert (code, output) == (7, "got 2\n")
            assert report["leftovers"]
    finally:
        os.close(mine)
        os.close(its)


def test_process_is_tracked_by_variable_parent_and_number():
    traces = Traces(Machine())
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], env={}).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script],
        env={MARK: traces.token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        child = int(job.stdout.readline())
        other = subprocess.Popen(["sleep", "60"])
        try:
            traces.look()
            assert {row.pid for row in traces.living()} == {job.pid, child}
            job.kill()
            job.wait()
            traces.look()
            assert [row.pid for row in traces.living()] == [child], "its parent has ended"
            assert traces.left("spill folder", f"/tmp/verl_spill_{job.pid}", ())
            assert not traces.left("spill folder", f"/tmp/verl_spill_{other.pid}", ())
            session = f"/tmp/x/ray/session_2026-11-28_01-31-47_662724_{job.pid}"
            assert traces.left("session folder", session, ())
            assert traces.left("address file", "/tmp/x/ray/ray_current_cluster", {session})
            assert not traces.left("address file", "/tmp/y/ray/ray_current_cluster", {session})
        finally:
            other.kill()
            other.wait()
            os.kill(child, 9)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--run"], "name the launch script to run"),
        (["--run", "--json", "--", "true"], "name a file with --output"),
        (["--run", "--", "no-such-program-here", "x"], "there is no such command or script"),
    ],
)
def test_invalid_commands_are_refused(words, sentence, tmp_path, monkeypatch, capfd):
    done = inside("clean", *words, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    assert done.returncode == 2
    assert sentence in done.stderr


@pytest.mark.slow
def test_apply_removes_leftovers_of_the_job(tmp_path, monkeypatch, capfd):
    """The minute in which nothing is removed passes at once here."""
    script = tmp_path / "run.sh"
    script.write_text("mkdir /tmp/verl_spill_$$; exit 3\n")
    began = time.time()
    monkeypatch.setattr("verl_doctor.toolkit.commands.clean.command.time.sleep", lambda _: None)
    monkeypatch.setattr(
        "verl_doctor.toolkit.collectors.leftovers.files.time.time", lambda: time.time_ns() / 1e9 + 120
    )
    done = inside("clean", "--run", "--apply", script, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    assert done.returncode == 3
    assert "REMOVED  1 spill folder" in done.stderr, done.stderr
    assert not [path for path in Path("/tmp").glob("verl_spill_*") if path.stat().st_mtime > began]
