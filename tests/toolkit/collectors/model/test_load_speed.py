"""Timing reads of parts of a model: what is measured, and that the page cache is unchanged afterwards."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from support.trying import unless_disturbed

from verl_doctor.toolkit.collectors.model import read_trial
from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, Speed, load_speed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage, model_storage
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.probes import read_speed
from verl_doctor.toolkit.system.page_cache import Residency, residency

MIB = 1024 * 1024


@pytest.fixture
def files(disk: Path) -> ModelFiles:
    """Two large sparse files, not cached: the kernel reads holes like data."""
    for name in ("a.safetensors", "b.safetensors"):
        disk.joinpath(name).touch()
        os.truncate(disk / name, 8 * MIB)
    return ModelFiles(
        str(disk), tuple(WeightFile(f"{name}.safetensors", "safetensors", 8 * MIB) for name in "ab")
    )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with 40 MiB for each region, in less time."""
    monkeypatch.setattr(read_trial, "_REGION", MIB)


def storage(files: ModelFiles, read_ahead: int = 128 * 1024, **other: bool) -> ModelStorage:
    return ModelStorage(files.folder, "ext4", read_ahead=read_ahead, **other)  # type: ignore[arg-type]


def look(
    files: ModelFiles, machine: Machine | None = None, where: ModelStorage | None = None
) -> LoadSpeed | Unknown:
    found = load_speed.collect(machine or Machine(), files, where or storage(files))
    assert isinstance(found, (LoadSpeed, Unknown))
    return found


def cached(files: ModelFiles) -> list[int]:
    """Cached bytes of each file."""
    found = []
    for file in files.files:
        opened = os.open(Path(files.folder, file.name), os.O_RDONLY)
        held = residency(opened)
        os.close(opened)
        assert isinstance(held, Residency)
        found.append(held.cached)
    return found


def answering(*answers: Output) -> tuple[Machine, list[Sequence[str]]]:
    """A machine whose child has this output, and the commands that it received."""
    commands: list[Sequence[str]] = []
    waiting = iter(answers)

    def run(argv: Sequence[str], _environ: object, _timeout: float) -> Output:
        commands.append(argv)
        answer = next(waiting)
        return Output(answer.code, argv[3] + answer.stdout, answer.stderr, 0.0)

    return Machine(environ={}, runner=run), commands


@pytest.mark.slow
@unless_disturbed
def test_every_method_is_measured_and_leaves_no_cached_pages(files: ModelFiles) -> None:
    real = model_storage.collect(Machine(), files)
    window = real.read_ahead or 0
    for file in files.files:
        os.truncate(Path(files.folder, file.name), 20 * (MIB + window))
    found = look(files, where=real)
    assert isinstance(found, LoadSpeed)
    for speed in (found.mapped, found.parallel, found.warm):
        assert speed is not None
        assert speed.bytes == 2 * MIB
        assert speed.seconds > 0
    assert found.left == 0
    assert cached(files) == [0, 0]


@unless_disturbed
def test_cached_pages_are_kept_and_not_measured(files: ModelFiles) -> None:
    opened = os.open(Path(files.folder, "a.safetensors"), os.O_RDONLY)
    os.pread(opened, 8 * MIB, 0)
    os.close(opened)
    machine, commands = answering(Output(0, "{}", "", 0.0))
    look(files, machine)
    (argv,) = commands
    requested = json.loads(argv[4])["pieces"]
    assert set(requested) == {"direct", "parallel", "mapped", "again"}
    assert {Path(path).name for pieces in requested.values() for path, _, _ in pieces} == {"b.safetensors"}
    assert cached(files)[0] == 8 * MIB


def test_no_byte_is_read_twice(files: ModelFiles) -> None:
    machine, commands = answering(Output(0, "{}", "", 0.0))
    look(files, machine)
    requested = json.loads(commands[0][4])["pieces"]
    assert requested.pop("again") == requested["mapped"]
    places = sorted(tuple(piece) for pieces in requested.values() for piece in pieces)
    for (path, start, length), (other, after, _) in pairwise(places):
        assert path != other or start + length <= after
    assert sum(length for _, _, length in places) == 6 * MIB


def test_child_output_becomes_speeds(files: ModelFiles) -> None:
    output = {"mapped": [100, 2.0, 100], "parallel": [300, 1.0, 300], "direct": None, "again": [0, 1.0, 0]}
    found = look(files, answering(Output(0, json.dumps(output), "", 0.0))[0])
    assert found == LoadSpeed(files.folder, mapped=Speed(100, 2.0), parallel=Speed(300, 1.0))
    assert isinstance(found, LoadSpeed)
    assert found.best == 300.0
    assert LoadSpeed("/m").best == 0.0


def test_share_that_does_not_respond_is_unknown(files: ModelFiles) -> None:
    found = look(files, answering(Output(None, "", "", 9.0))[0])
    assert isinstance(found, Unknown)
    assert "did not end within" in found.reason


@pytest.fixture
def undetermined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of another user, as the kernel describes them."""
    monkeypatch.setattr(read_trial, "residency", lambda *_: Unknown("the kernel tells nobody"))


@pytest.mark.usefixtures("undetermined")
def test_only_fetched_bytes_count_if_residency_is_hidden(files: ModelFiles) -> None:
    output = {
        "mapped": [100, 2.0, 95],
        "parallel": [300, 1.0, 0],
        "direct": [300, 1.0, 300],
        "again": [100, 1.0, 0],
    }
    found = look(files, answering(Output(0, json.dumps(output), "", 0.0))[0])
    assert isinstance(found, LoadSpeed)
    assert (found.mapped, found.parallel) == (Speed(100, 2.0), None)
    assert (found.direct, found.warm) == (Speed(300, 1.0), Speed(100, 1.0))


@pytest.mark.usefixtures("undetermined")
@pytest.mark.parametrize("fetched", [0, None])
def test_reads_from_memory_do_not_measure_a_disk(files: ModelFiles, fetched: int | None) -> None:
    output = {"mapped": [100, 2.0, fetched], "again": [100, 1.0, 0]}
    found = look(files, answering(Output(0, json.dumps(output), "", 0.0))[0])
    assert isinstance(found, Unknown)
    assert "the kernel tells nobody, and what was read was already cached" in found.reason


@unless_disturbed
def test_cached_or_in_memory_files_are_not_measured(files: ModelFiles) -> None:
    in_memory = look(files, where=storage(files, in_memory=True))
    assert isinstance(in_memory, Absent)
    for file in files.files:
        Path(files.folder, file.name).read_bytes()
    warm = look(files)
    assert isinstance(warm, Absent)
    assert "out of the page cache" in warm.reason


def test_removed_file_is_unknown(files: ModelFiles) -> None:
    Path(files.folder, "a.safetensors").unlink()
    found = look(files)
    assert isinstance(found, Unknown)
    assert "No such file" in found.reason


def test_slow_disk_is_abandoned_in_time(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl_doctor.toolkit.probes import read_speed

    path = str(Path(files.folder, "a.safetensors"))
    now = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    assert read_speed.mapped([(path, 0, 8 * MIB)], until=2.5) == 3 * MIB


def test_unread_pieces_are_not_read_in_the_second_pass() -> None:
    pieces = [("a", 0, 10), ("a", 20, 10), ("b", 0, 10)]
    assert list(read_speed.first(pieces, 30)) == pieces
    assert list(read_speed.first(pieces, 14)) == [("a", 0, 10), ("a", 20, 4)]
    assert list(read_speed.first(pieces, 0)) == []
