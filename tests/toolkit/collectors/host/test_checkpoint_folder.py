"""Whether the folder for checkpoints can be made: nothing is written to find out."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import TREE, configured
from verl_doctor.toolkit.collectors.host.checkpoint_folder import CheckpointFolder, checkpoint_folder
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import file_systems

SAVING = {**TREE, "trainer": {**TREE["trainer"], "save_freq": 10, "default_local_dir": "checkpoints/x"}}


def look(folder: str, *words: str, root: Path = Path("/")) -> CheckpointFolder | Unknown:
    (there,) = configured(f"trainer.default_local_dir={folder}", *words, tree=SAVING)
    return checkpoint_folder.collect(there, Launch(()), Machine(environ={}, root=root))


def test_a_folder_that_can_be_made_below_one_that_is_there(tmp_path: Path) -> None:
    assert look(f"{tmp_path}/new/one") == CheckpointFolder(f"{tmp_path}/new/one", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert look(f"{tmp_path}/file/x") == CheckpointFolder(
        f"{tmp_path}/file/x", f"{tmp_path}/file", "a file is in the way"
    )


def test_the_kernels_own_folders_take_no_files() -> None:
    assert look("/proc/ckpt") == CheckpointFolder("/proc/ckpt", "/proc", "of the kernel")


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write everywhere
    monkeypatch.setattr(file_systems, "why_refused", lambda _: "Permission denied")
    assert look(f"{tmp_path}/x") == CheckpointFolder(f"{tmp_path}/x", str(tmp_path), "no permission to write")


def test_a_job_that_saves_nothing_there_is_not_judged(tmp_path: Path) -> None:
    assert isinstance(look(f"{tmp_path}/x", "trainer.save_freq=-1"), Absent)
    assert isinstance(look("relative/folder"), Absent)
    submitted = Launch((), submitted="ray job submit")
    (there,) = configured(f"trainer.default_local_dir={tmp_path}", tree=SAVING)
    assert isinstance(checkpoint_folder.collect(there, submitted, Machine(environ={})), Absent)
