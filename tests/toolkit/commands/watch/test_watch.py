"""`verl-doctor watch`: gauges, sampling, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.watch.document import document, headline
from verl_doctor.toolkit.commands.watch.forecast import Forecast
from verl_doctor.toolkit.commands.watch.metrics import Gauge, Stores, gauges
from verl_doctor.toolkit.commands.watch.render import line, markdown_lines, text_lines
from verl_doctor.toolkit.commands.watch.watch import watch
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.system.cgroups import ControlGroups, Group
from verl_doctor.toolkit.system.file_systems import Space

GIB = 1 << 30
NOTHING = Absent("there is none")
GROUP = Group("/sys/fs/cgroup/job", pids=1000, pids_used=700, memory=100 * GIB, memory_used=50 * GIB)


def stores(free: float = 100, **variables: str) -> Stores:
    """A machine with a 200 GiB disk for Ray and temporary files, and all other gauges."""
    about = {"size": 200 * GIB, "free": int(free * GIB), "kind": "ext4", "inodes": 1000, "inodes_free": 400}
    folders = (Folder("Ray's sessions", "/tmp/ray", **about), Folder("temporary files", "/tmp", **about))
    return Stores(
        folders=Folders(folders),
        shared_memory=Space(64 * GIB, 60 * GIB),
        memory=HostMemory(200 * GIB, 150 * GIB),
        limits=HostLimits(
            Limits(groups=ControlGroups((GROUP,))), all_tasks=3000, threads_max=60_000, pid_max=32_768
        ),
        gpus=Gpus((Device(3, memory=Memory(total=1000, used=600, free=400)),)),
        variables=Variables(variables),
        named=(("/checkpoints", Space(10 * GIB, GIB)),),
    )


def test_each_gauge_has_a_limit_with_a_consequence() -> None:
    found = {gauge.name: (gauge.used, gauge.limit, gauge.then) for gauge in gauges(stores())}
    assert found == {
        "/tmp/ray (spilling)": (100 * GIB, 190 * GIB, "Ray stops spilling"),
        "/tmp/ray": (100 * GIB, 200 * GIB, "the disk is full"),
        "/tmp/ray (files)": (600, 1000, "no more files can be created"),
        "/checkpoints": (9 * GIB, 10 * GIB, "the disk is full"),
        "/dev/shm": (4 * GIB, 64 * GIB, "shared memory is full"),
        "memory": (50 * GIB, 190 * GIB, "Ray ends workers"),
        "memory of /sys/fs/cgroup/job": (50 * GIB, 95 * GIB, "Ray ends workers"),
        "threads of /sys/fs/cgroup/job": (700, 1000, "no thread can be started"),
        "threads": (3000, 32_768, "no thread can be started"),
        "GPU 3": (600 << 20, 1000 << 20, "allocations on the GPU fail"),
    }


def test_ray_settings_change_the_limits() -> None:
    found = {gauge.name: gauge.limit for gauge in gauges(stores(RAY_local_fs_capacity_threshold="0.99"))}
    assert found["/tmp/ray (spilling)"] == 198 * GIB


def test_disk_past_the_spilling_threshold_is_watched_until_full() -> None:
    names = [gauge.name for gauge in gauges(stores(free=5))]
    assert "/tmp/ray (spilling)" not in names
    assert "/tmp/ray" in names


def test_unreadable_machine_is_unknown() -> None:
    blind = Stores(NOTHING, None, NOTHING, NOTHING, NOTHING, Variables())
    assert gauges(blind) == ()
    assert headline([], 60)[0] == "UNKNOWN"


class Stopwatch:
    """A clock of the test's own: time passes while one waits, and with each look."""

    def __init__(self, wishes: int = 1000) -> None:
        self.time, self.waits, self.wishes = 0.0, 0, wishes

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> bool:
        self.time += seconds
        self.waits += 1
        return self.waits < self.wishes


def test_watch_samples_until_the_time_is_over() -> None:
    clock, free = Stopwatch(), 100.0

    def look() -> Stores:
        nonlocal free
        free -= 1
        clock.time += 0.4
        return stores(free)

    (*_, last) = watch(look, clock, every=5, until=130)
    assert last.looks == 27
    assert clock.time <= 130.4
    first = last.forecasts()[0]
    assert (first.gauge.name, first.gauge.then) == ("/tmp/ray (spilling)", "Ray stops spilling")
    assert first.rate == pytest.approx(GIB / 5, rel=0.1)


def test_watch_samples_at_least_once_and_stops_on_request() -> None:
    assert [history.looks for history in watch(stores, Stopwatch(), every=5, until=0)] == [1]
    (*_, last) = watch(stores, Stopwatch(wishes=3), every=5, until=1000)
    assert last.looks == 3


ENDING = [
    Forecast(Gauge("/tmp/\x1b[31mray", 180 * GIB, 190 * GIB, "bytes", "Ray stops spilling"), 45 << 20, 227.0),
    Forecast(Gauge("memory", 50 * GIB, 190 * GIB, "bytes", "Ray ends workers"), -1000.0, None),
    Forecast(Gauge("threads", 700, 1000, "number", "no thread can be started"), 0.5, 600.0),
]


@pytest.mark.parametrize("width", [40, 80])
def test_summary_names_the_first_gauge_to_run_out(width: int) -> None:
    shown = [str(line) for line in text_lines(ENDING, 86_400, width)]
    assert shown[0].startswith("FAIL  /tmp/\\x1b[31mray: Ray stops")
    assert "in about 3 minutes" in " ".join(line.strip() for line in shown)
    assert all(len(line) <= width for line in shown if "verl-doctor clean" not in line)
    assert "\x1b" not in "".join([*shown, *markdown_lines(ENDING, 86_400), line("12:00:00", ENDING)])
    assert len(line("12:00:00", ENDING * 9)) < 80


def test_gauge_that_runs_out_later_is_not_a_failure() -> None:
    assert headline(ENDING, 60) == ("OK", "nothing runs out within 60 seconds at the present rate")
    assert document(ENDING, looks=9, seconds=40, within=60)["verdict"] == "ok"
    shown = document(ENDING, looks=9, seconds=40, within=300)
    assert shown["verdict"] == "failures"
    validate(shown, schema_text("watch"))


def test_command_reports_this_machine(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    done = here("watch", "--for", "0s", "--format", "json", "--path", "saved", cwd=tmp_path)
    shown = json.loads(done.stdout)
    validate(shown, schema_text("watch"))
    assert {"memory", "threads", str(tmp_path / "saved")} <= {gauge["name"] for gauge in shown["gauges"]}
    assert shown["looks"] == len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_signal_stops_the_watch_with_a_summary(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "verl_doctor.toolkit", "watch", "--for", "1h", "--within", "0s"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as running:
        assert running.stderr is not None
        assert running.stdout is not None
        running.stderr.readline()
        running.send_signal(number)
        try:
            shown, _ = running.communicate(timeout=120)
        finally:
            running.kill()
        assert running.returncode == (1 if shown.startswith("FAIL") else 3)
    assert shown.startswith(("TOO SHORT", "FAIL"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--every", "soon"), "is not a duration"),
        (("--for", "-5"), "is not a duration"),
        (("--path", ""), "it is empty"),
        (("--path", "no/such"), "does not exist; create it, or name an existing folder: "),
        (("--path", "/proc"), "does not report its size"),
        (("--every", "0s"), "0s is too short; the minimum is 1s"),
        (("--every", "999999999d"), "999999999d is too long; the maximum is 3650d"),
        (("--every", "2h", "--for", "1h"), "--every is longer than --for"),
        (("--ray-address", "10.0.0.1:6379"), "watch examines only this machine"),
    ],
)
def test_usage_errors(here: Doctor, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = here("watch", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr
