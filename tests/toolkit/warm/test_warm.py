"""Loading files into the page cache, verified by the kernel's residency information."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.evicted import cached_share, evict, written
from support.trying import unless_disturbed

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.page_cache import Residency
from verl_doctor.toolkit.warm import reading
from verl_doctor.toolkit.warm.files import choose
from verl_doctor.toolkit.warm.reading import PAGE, Device, ahead_of, fetch, parts_with_data
from verl_doctor.toolkit.warm.room import Room
from verl_doctor.toolkit.warm.summary import headline, remarks, summary
from verl_doctor.toolkit.warm.warm import Moment, Plan, Warmed, survey, warm

MIB = 1 << 20
NEVER: Callable[[], str] = str


def plan_for(*paths: Path, room: int | None = None, limit: int | None = None) -> Plan:
    return survey(Machine(), choose(None, paths), Room(room, "memory limit of /job"), limit)


def warmed(*paths: Path, room: int | None = None, limit: int | None = None) -> Warmed:
    return warm(Machine(), plan_for(*paths, room=room, limit=limit), NEVER)


def summary_of(done: Warmed) -> str:
    one = summary(done)
    return " ".join((*headline(one), *remarks(one)))


@unless_disturbed
def test_evicted_files_become_resident(disk: Path) -> None:
    files = [written(disk / name, 2 * MIB + 1234) for name in ("a", "b")]
    assert [cached_share(file) for file in files] == [0, 0]
    planned = plan_for(disk)
    assert planned.missing == planned.wanted == planned.size == 2 * (2 * MIB + 1234)
    assert summary_of(Warmed(planned)).startswith("COLD 0 B of 4.0 MiB in 2 files are resident")
    done = warm(Machine(), planned, NEVER)
    assert [cached_share(file) for file in files] == [1, 1]
    assert (summary(done).verdict, done.resident, done.read) == ("ok", planned.size, planned.size)
    again = warmed(disk)
    assert (summary(again).verdict, again.read) == ("ok", 0)
    assert "were resident already" in summary_of(again)


def test_missing_file_is_not_called_empty(disk: Path) -> None:
    assert summary_of(warmed(disk / "gone")).startswith("PART no file could be read")
    (disk / "empty").touch()
    assert summary_of(warmed(disk / "empty")).startswith("NOTHING none of the files has any content")


def opened(file: Path) -> int:
    return os.open(file, os.O_RDONLY)


@unless_disturbed
def test_single_advice_over_a_whole_file_is_insufficient(disk: Path) -> None:
    """The kernel reports success for both; pages beyond the device's read-ahead never arrive."""
    size = 20 * MIB  # no disk is configured for a read-ahead of more than 8 MiB
    file = written(disk / "a", size)
    number = opened(file)
    try:
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_WILLNEED)
        time.sleep(0.1)
        assert cached_share(file) < 1
        for ahead in (128 * 1024, 8 * MIB):
            evict(file)
            fetch(number, 0, size, Device(ahead), bool)
            assert cached_share(file) == 1
    finally:
        os.close(number)


@pytest.mark.parametrize("ahead", [64 * 1024, 8 * MIB])
@unless_disturbed
def test_bytes_are_read_if_advice_and_sendfile_do_not_work(
    disk: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """As on some network and FUSE file systems: nothing is decided by a name."""
    file = written(disk / "a", 2 * MIB)
    pieces: list[int] = []

    def passing_over(_: int, start: int, length: int, kind: int) -> None:
        assert kind == os.POSIX_FADV_WILLNEED
        assert length <= ahead
        pieces.append(start)

    def unknown(*_: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", passing_over)
    monkeypatch.setattr(os, "sendfile", unknown)
    number = opened(file)
    device = Device(ahead)
    device.took(1.0, MIB, advised=False)  # so that it is the turn of the other way
    fetch(number, MIB, 2 * MIB, device, bool)
    os.close(number)
    assert cached_share(file) >= 0.5
    assert pieces == (list(range(MIB, 2 * MIB, ahead)) if ahead < reading.ENOUGH else [])


@pytest.mark.parametrize(("advised", "plain"), [(0.1, 0.3), (0.3, 0.1)])
def test_initially_faster_method_is_kept(advised: float, plain: float) -> None:
    device = Device(128 * 1024)
    tried = []
    for _ in range(8):
        tried.append(device.gives_advice())
        device.took(advised if tried[-1] else plain, MIB, advised=tried[-1])
    assert sorted(tried) == [False] * 4 + [True] * 4
    assert device.gives_advice() == (advised < plain)


@unless_disturbed
def test_file_with_hidden_residency_is_read_but_not_called_resident(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(disk / "a", 3 * MIB)
    monkeypatch.setattr(reading, "residency", lambda *_: Unknown("not to you"))
    done = warmed(file)
    assert (summary(done).verdict, done.resident, done.read) == ("could_not_check", None, 3 * MIB)
    assert "does not report" in summary_of(done)
    monkeypatch.undo()
    assert cached_share(file) == 1


@unless_disturbed
def test_holes_are_not_read(disk: Path) -> None:
    file = disk / "sparse"
    with file.open("wb") as stream:
        stream.seek(30 * MIB)
        stream.write(os.urandom(2 * MIB))
        stream.truncate(100 * MIB)
        stream.flush()
        os.fsync(stream.fileno())
        parts = list(parts_with_data(stream.fileno(), 100 * MIB))
    evict(file)
    assert sum(end - start for start, end in parts) == 2 * MIB
    done = warmed(file)
    assert (summary(done).verdict, done.plan.size, done.resident) == ("ok", 2 * MIB, 2 * MIB)
    assert cached_share(file) < 0.3  # the kernel reads ahead, into the next hole


def test_empty_selection_has_nothing_to_do(disk: Path) -> None:
    (disk / "empty").touch()
    assert summary_of(warmed(disk)).startswith("NOTHING")


@unless_disturbed
def test_limited_room_warms_the_files_that_a_loader_reads_first(disk: Path) -> None:
    files = [written(disk / f"model-{number}.safetensors", MIB) for number in range(1, 5)]
    done = warmed(disk, room=9 * MIB // 4)
    # The kernel reads ahead of the requested range, within the file.
    assert [cached_share(file) for file in (files[0], files[1], files[3])] == [1, 1, 0]
    assert cached_share(files[2]) >= 0.25
    assert summary_of(Warmed(plan_for(disk, room=9 * MIB // 4))).startswith("PART 2.2 MiB of 4.0 MiB")
    one = summary(done)
    assert (one.verdict, one.whole_files, one.wanted) == ("failures", 2, 9 * MIB // 4)
    assert (
        "the memory limit of /job leaves 2.2 MiB: 2.2 MiB of 4.0 MiB are warmed, up to model-3.safetensors: "
        "2 files complete, those that a loader reads first"
    ) in summary_of(done)


@unless_disturbed
def test_limit_set_by_the_user_is_not_a_failure(disk: Path) -> None:
    written(disk / "a", 2 * MIB)
    done = warmed(disk, room=100 * MIB, limit=MIB + 5)
    assert (summary(done).verdict, done.resident) == ("ok", MIB)
    assert "--limit allows no more" in summary_of(done)


def test_files_already_in_memory_need_no_room(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("there is no /dev/shm here")
    file = memory / f"verl-doctor-test-{os.getpid()}"
    try:
        file.write_bytes(os.urandom(MIB))
        done = warmed(file, room=0)
    finally:
        file.unlink()
    assert (summary(done).verdict, done.read) == ("ok", 0)
    assert "are in memory already" in summary_of(done)


@unless_disturbed
def test_warmup_stops_on_request_and_can_be_continued(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_doctor.toolkit.warm.warm.STRETCH", MIB // 4)
    file = written(disk / "a", 4 * MIB)
    fetched: list[object] = []
    real = reading.fetch

    def counted(number: int, *words: object) -> None:
        fetched.append(words)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
        real(number, *words)  # type: ignore[arg-type]

    monkeypatch.setattr("verl_doctor.toolkit.warm.warm.fetch", counted)
    half = warm(Machine(), plan_for(file), lambda: "SIGINT ended it" if len(fetched) > 3 else "")
    assert half.resident is not None
    assert half.resident < 4 * MIB
    assert summary(half).verdict == "failures"
    assert "SIGINT ended it: run the same command again to continue" in summary_of(half)
    rest = warmed(file)
    assert (rest.read, summary(rest).verdict) == (4 * MIB - half.resident, "ok")


def test_truncated_file_is_a_failure(disk: Path) -> None:
    file = written(disk / "a", 2 * MIB)
    planned = plan_for(file)
    os.truncate(file, MIB)
    done = warm(Machine(), planned, NEVER)
    assert summary(done).verdict == "failures"
    assert "it was truncated meanwhile" in summary_of(done)


@unless_disturbed
def test_removed_or_replaced_file_is_reported(disk: Path) -> None:
    gone, other, good = (written(disk / name, MIB) for name in ("gone", "other", "good"))
    planned = plan_for(disk)
    gone.unlink()
    other.rename(disk / "old")
    written(other, MIB)
    done = warm(Machine(), planned, NEVER)
    assert "gone: No such file or directory" in summary_of(done)
    assert "other: it was replaced by another file" in summary_of(done)
    assert cached_share(good) == 1


@unless_disturbed
def test_disk_error_affects_only_its_file(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = written(disk / "bad", MIB), written(disk / "good", MIB)
    broken, real = bad.stat().st_ino, os.sendfile

    def sendfile(nowhere: int, number: int, start: int, length: int) -> int:
        if os.fstat(number).st_ino == broken:
            raise OSError(errno.EIO, "Input/output error")
        return real(nowhere, number, start, length)

    monkeypatch.setattr(os, "sendfile", sendfile)
    done = warmed(disk)
    assert summary(done).verdict == "failures"
    assert "bad: Input/output error" in summary_of(done)
    assert cached_share(good) == 1


def test_evicted_pages_are_read_again_once_and_then_reported(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(disk / "a", MIB)
    real = reading.fetch

    def pushed_out(number: int, *words: object) -> None:
        real(number, *words)  # type: ignore[arg-type]
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)

    monkeypatch.setattr("verl_doctor.toolkit.warm.warm.fetch", pushed_out)
    done = warmed(file)
    assert done.read == 2 * MIB
    assert summary(done).lost == MIB
    assert "1.0 MiB were read and evicted from memory again" in summary_of(done)
    assert summary(done).verdict == "failures"


def test_threads_hanging_in_a_file_system_are_abandoned(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(disk / "a", MIB)
    monkeypatch.setattr("verl_doctor.toolkit.warm.warm._ENDING", 0.2)
    held = threading.Event()
    monkeypatch.setattr("verl_doctor.toolkit.warm.warm.fetch", lambda *_: held.wait(20))
    try:
        done = warm(Machine(), plan_for(disk), lambda: "SIGTERM ended it")
        began = warm(Machine(), plan_for(disk), _after(0.1))
    finally:
        held.set()
    assert summary(done).ended == "SIGTERM ended it"
    assert "its file system does not respond" in summary_of(began)


def _after(seconds: float) -> Callable[[], str]:
    end = time.monotonic() + seconds
    return lambda: "the time was up" if time.monotonic() > end else ""


def test_read_ahead_of_disk_partition_and_network_mount(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("sys/class/bdi/0:52/read_ahead_kb", "15360\n")
    write("sys/class/bdi/8:0/read_ahead_kb", "512\n")
    write("sys/dev/block/queue/read_ahead_kb", "256\n")
    write("sys/dev/block/8:1/partition", "1\n")
    write("sys/class/bdi/9:0/read_ahead_kb", "0\n")
    machine = Machine(root=tmp_path)
    assert ahead_of(machine, os.makedev(0, 52)) == 15 * MIB
    assert ahead_of(machine, os.makedev(8, 0)) == 512 * 1024
    assert ahead_of(machine, os.makedev(8, 1)) == 256 * 1024
    assert ahead_of(machine, os.makedev(9, 0)) == 128 * 1024
    assert ahead_of(machine, os.makedev(7, 7)) == 128 * 1024


def test_deadline_accounts_for_the_remaining_time() -> None:
    assert Moment(0, 100, 1.0).left is None
    assert Moment(50, 100, 2.0).left == pytest.approx(2.0)
    assert Residency(PAGE, PAGE, PAGE).share == 1
