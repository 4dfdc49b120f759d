"""A real Ray: everything of a killed one is a leftover, nothing of a running one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.left_behind import two_minutes_later
from support.ray import head as ray_head

from verl_doctor.toolkit.collectors.leftovers import files as leftovers_files
from verl_doctor.toolkit.collectors.leftovers import orphans
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import judged_all
from verl_doctor.toolkit.collectors.leftovers.files import look
from verl_doctor.toolkit.collectors.leftovers.places import places
from verl_doctor.toolkit.collectors.leftovers.process_signs import signs_of
from verl_doctor.toolkit.collectors.leftovers.processes import LeftProcesses, left_processes
from verl_doctor.toolkit.commands.clean import clean
from verl_doctor.toolkit.commands.clean.clean import Found
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import EndProcess, Leftover
from verl_doctor.toolkit.machine import Machine

pytestmark = [pytest.mark.real, pytest.mark.slow]

# 200 MB of objects in a store of 100 MB: half of them are spilled; and shared memory that is never unlinked.
_DRIVER = """
import os, sys, time
import ray
from multiprocessing import resource_tracker, shared_memory
ray.init({options}, log_to_driver=False)
kept = [ray.put(os.urandom(20_000_000)) for _ in range(10)]
segment = shared_memory.SharedMemory(create=True, size=5_000_000)
resource_tracker.unregister(segment._name, "shared_memory")
segment.buf[:] = bytes(5_000_000)
print(segment.name, flush=True)
time.sleep(600)
"""


# A disk that is nearly full, by what others keep on it, is no reason not to spill.
_SPILLS = {"RAY_local_fs_capacity_threshold": "1"}


@pytest.fixture(autouse=True)
def _no_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all that the doctor can detect, the tracker of another job may count the segment.

    And where another test passes a descriptor on, or has an overlay that is mounted nowhere, no file is certainly unused.
    """
    signs = leftovers_files.signs_of
    monkeypatch.setattr(
        leftovers_files, "signs_of", lambda *what: replace(signs(*what), trackers=(), in_flight=())
    )


@pytest.fixture(scope="module")
def python() -> Path:
    return ray_head.environment() / "bin" / "python"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets; processes that still use it are ended."""
    folder = Path(tempfile.mkdtemp(prefix="vd-", dir="/tmp"))
    yield folder
    for session in (folder / "ray").glob("session_2*"):
        _kill_all_of(session)
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def driver(python: Path, folder: Path, options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A job that holds objects and a segment, and the segment's name. It is killed in the end."""
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(folder),
        "HOME": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        **_SPILLS,
    }
    command = [python, "-c", _DRIVER.format(options=options)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as job:
        name = ""
        try:
            assert job.stdout is not None
            name = job.stdout.readline().strip()
            assert name.startswith("psm_")
            yield job, name
        finally:
            job.kill()
            Path("/dev/shm", name or "none").unlink(missing_ok=True)


def of(folder: Path, segment: str) -> Callable[[], Found]:
    """Leftovers of this test alone: other jobs run on the machine."""

    def found() -> Found:
        machine = Machine(environ={})
        mine = [
            place
            for place in places(machine, [f"{folder}/ray"], [], [])
            if place.path.startswith(f"{folder}/") or place.name == segment
        ]
        files = judged_all(look(mine, machine))
        seen = left_processes.collect(Unknown("no GPU"), machine)
        assert isinstance(seen, LeftProcesses)
        pids = {pid for session in (folder / "ray").glob("session_2*") for pid in _of_session(session)}
        ours = [
            leftover
            for leftover in seen.found
            if isinstance(leftover.removal, EndProcess) and leftover.removal.pid in pids
        ]
        return Found((*files.found, *ours), files.kept)

    return found


def kinds(leftovers: tuple[Leftover, ...]) -> dict[str, int]:
    """Of each kind how large the largest is, in MB."""
    return {
        leftover.kind: max(
            round((other.size or 0) / 1e6) for other in leftovers if other.kind == leftover.kind
        )
        for leftover in leftovers
    }


def test_running_cluster_keeps_everything_and_killed_one_nothing(python, tmp_path):
    with (
        ray_head.head(python, "".join(f"export {name}={value};" for name, value in _SPILLS.items())) as head,
        driver(python, head.folder, f"address={head.address!r}") as (job, segment),
    ):
        session = (head.folder / "ray" / "session_latest").resolve()
        found = of(head.folder, segment)
        with two_minutes_later():
            assert found().leftovers == ()
            assert {Path(leftover.name).name for leftover in found().kept} == {
                session.name,
                "ray_current_cluster",
                segment,
            }
            _kill_all_of(session)
            job.wait(300)
            # A process that is being killed keeps its command line for a while after it has closed its files.
            _wait(lambda: found().kept == ())
            left = kinds(found().leftovers)
            assert left.keys() == {"session folder", "address file", "shared memory"}
            assert left["session folder"] > 50
            assert left["shared memory"] == 5
            removed = removed_by_and_by(found, tmp_path)
        assert removed == {"session folder", "address file", "shared memory"}
        assert not session.exists()
        assert not Path("/dev/shm", segment).exists()


def test_listening_agents_of_a_killed_driver_keep_their_session(python, short, tmp_path, monkeypatch):
    """They serve no client any more, but a listener is a sign of life. After they end, the session is removed."""
    monkeypatch.setattr(orphans, "YOUNG", 0.0)
    with driver(python, short, "num_cpus=1, include_dashboard=False, object_store_memory=100_000_000") as (
        job,
        segment,
    ):
        session = (short / "ray" / "session_latest").resolve()
        found = of(short, segment)
        assert found().leftovers == ()
        os.kill(job.pid, signal.SIGKILL)
        job.wait(300)
        # The raylet ends when its driver has; its agents do not.
        _wait(
            lambda: (
                not any(
                    "raylet" in process.name() or "gcs_server" in process.name()
                    for process in ray_head.below(short)
                )
            )
        )
        with two_minutes_later():
            before = set(_of_session(session))
            kept = found().kept
            if before & set(_of_session(session)):  # an agent may end by itself while it is looked for
                assert str(session) in {leftover.name for leftover in kept}, kept
            _kill_all_of(session)
            _wait(lambda: found().leftovers)
            removed = removed_by_and_by(found, tmp_path)
        assert {"session folder", "shared memory"} <= removed
        assert not session.exists()


def removed_by_and_by(found: Callable[[], Found], folder: Path) -> set[str]:
    """The kinds that several clean-ups remove: other tests may start and end processes that leave one in doubt."""
    kinds = set()
    for number in range(5):
        done = clean.remove_all(found, Machine(environ={}), folder / f"journal-{number}", lambda _: None)
        kinds |= {outcome.leftover.kind for outcome in done.outcomes or () if outcome.state == "removed"}
        if all(outcome.state == "removed" for outcome in done.outcomes or ()):
            break
    return kinds


def _of_session(session: Path) -> list[int]:
    """Processes that use a session, including agents whose titles do not contain its folder."""
    return [use.pid for use in signs_of({session.name}, Machine(environ={})).of(session.name)]


def _kill_all_of(session: Path) -> None:

    def none_is_left() -> bool:
        for pid in (left := _of_session(session)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    _wait(none_is_left)


def _wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if until():
                return
        time.sleep(0.2)
    raise AssertionError("waited in vain")
