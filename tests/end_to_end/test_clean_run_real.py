"""Leftovers of a job with a real Ray for each way to end, as shown by `clean --run`."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.ray import head as ray_head
from support.running import JobStarted, job_started

pytestmark = [pytest.mark.real, pytest.mark.slow]

# Two actors and a segment that is never unlinked. It ends by itself only in the first two ways.
_JOB = """
import os, sys, time
from multiprocessing import resource_tracker, shared_memory
import ray
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)

@ray.remote(num_cpus=0)
class Worker:
    def pid(self):
        return os.getpid()

workers = [Worker.remote() for _ in range(2)]
pids = ray.get([worker.pid.remote() for worker in workers])
segment = shared_memory.SharedMemory(create=True, size=5_000)
resource_tracker.unregister(segment._name, "shared_memory")
time.sleep(1.2)  # longer than between two looks
print(os.getpid(), segment.name, *pids, flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
if sys.argv[1] == "error":
    raise RuntimeError("as planned")
if sys.argv[1] != "normal":
    time.sleep(600)
"""
_AGENT = re.compile(r"ray/|ray::(?:Dashboard|RuntimeEnv)Agent|multiprocessing\.")
_PROCESS = re.compile(r"\(process (\d+)\)$")

Ending = Callable[[JobStarted, int], object]
ENDINGS: dict[str, tuple[Ending, int, str | None]] = {
    "normal": (lambda run, terminal: None, 0, None),
    "error": (lambda run, terminal: None, 1, None),
    "ctrl-c": (lambda run, terminal: os.write(terminal, b"\x03"), 1, None),
    "term": (lambda run, terminal: run.process.terminate(), 15, None),
    "kill": (lambda run, terminal: os.kill(int(run.ready[0]), signal.SIGKILL), 137, "SIGKILL"),
}
"""How the job is ended, its exit code, and the signal: Ray takes the first two itself, and ends with codes of its own."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for sockets; processes that still use it are ended."""
    made = Path(tempfile.mkdtemp(prefix="vd-", dir="/tmp"))
    yield made
    for process in [*ray_head.below(made)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("ending", ENDINGS)
def test_leftovers_of_an_ended_job(ending, folder, terminal):
    end, code, by = ENDINGS[ending]
    (folder / "job.py").write_text(_JOB)
    rays = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    stranger = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    others = Path(f"/tmp/verl_spill_{stranger.pid}")  # the job ends when it is there
    words = [ray_head.environment() / "bin" / "python", folder / "job.py", ending, others]
    with job_started(folder, words, terminal[1], **rays) as run:
        driver, segment, *actors = run.ready
        try:
            others.mkdir()
            end(run, terminal[0])
            returned, output, report = run.ended()
        finally:
            others.rmdir()
            stranger.communicate()
            Path("/dev/shm", segment).unlink(missing_ok=True)
    errors = (folder / "stderr").read_text()
    assert (returned, output) == (code, ""), errors
    assert (report["run"]["exit_code"], report["run"]["signal"]) == (code, by)
    left = {entry["name"]: entry for entry in (*report["leftovers"], *report["kept"])}
    (session,) = (folder / "ray").glob("session_2*")
    assert session.name.endswith(f"_{driver}")
    assert {str(session), f"/dev/shm/{segment}"} <= left.keys()
    running = {match[1] for name in left if (match := _PROCESS.search(name))}
    assert not running & {driver, *actors}
    processes = {entry["name"] for entry in left.values() if entry["kind"] == "process"}
    assert not [name for name in processes if not _AGENT.match(name)], "no worker, raylet or GCS"
    assert {entry["kind"] for entry in left.values()} <= {"session folder", "shared memory", "process"}
    assert str(others) in {entry["name"] for entry in report["run"]["appeared"]}
