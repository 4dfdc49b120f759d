"""Content of a job's paths, described so that two nodes can be compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles
from verl_doctor.toolkit.collectors.model.job_files import JobFiles, job_files
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

NOTHING = Unknown("nothing is named")


def seen(model: Path | None, *data: Path) -> JobFiles:
    target = Target(Path("/env/bin/python"), "--python", model=model)
    named = DataFiles(tuple(DataFile(str(path), "train", "data.train_files", "parquet") for path in data))
    found = job_files.collect(Machine(), target, NOTHING, NOTHING, named if data else NOTHING)
    assert isinstance(found, JobFiles)
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for number, size in enumerate((3000, 2000)):
        shard = folder / f"model-{number}.safetensors"
        shard.write_bytes(b"w" * size)
        os.utime(shard, (1e9, 1e9 + number))
    return folder


def test_folder_is_fingerprinted_by_its_files(model: Path) -> None:
    (file,) = seen(model).files
    assert (file.what, file.state, file.files, file.size, file.changed) == (
        "model",
        "there",
        2,
        5000,
        10**9 + 1,
    )
    assert file.mount


def test_copy_has_the_same_fingerprint_and_a_truncated_one_differs(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for shard in model.iterdir():
        copy.joinpath(shard.name).write_bytes(shard.read_bytes())
    assert seen(copy).files[0].names == seen(model).files[0].names
    copy.joinpath("model-1.safetensors").write_bytes(b"w" * 100)
    assert seen(copy).files[0].names != seen(model).files[0].names


def test_data_files_are_inspected(tmp_path: Path) -> None:
    there = tmp_path / "train.parquet"
    there.write_bytes(b"x" * 7)
    first, second = seen(None, there, tmp_path / "val.parquet").files
    assert (first.what, first.state, first.files, first.size) == ("data", "there", 1, 7)
    assert (second.state, second.files) == ("missing", 0)


def test_broken_link_in_a_folder_is_not_counted(model: Path) -> None:
    model.joinpath("link").symlink_to("nowhere")
    assert seen(model).files[0].files == 2


def test_no_named_files_is_absent() -> None:
    target = Target(Path("/env/bin/python"), "--python")
    assert isinstance(job_files.collect(Machine(), target, NOTHING, NOTHING, NOTHING), Absent)
