"""Whether the folder for checkpoints can be made: nothing is written to find out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.configuration.checkpoint_folder_unusable import checkpoint_folder_unusable
from verl_doctor.checks.shared.configuration import TREE, configured
from verl_doctor.toolkit.collectors.host.output_folders import (
    TIMELINE,
    BackupFolder,
    CheckpointFolder,
    DatasetsCache,
    MetricsFile,
    TimelineFile,
    backup_folder,
    checkpoint_folder,
    datasets_cache,
    metrics_file,
    timeline_file,
    tracker_folder,
)
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import file_systems

SAVING = {**TREE, "trainer": {**TREE["trainer"], "save_freq": 10, "default_local_dir": "checkpoints/x"}}


def look(folder: str, *words: str, root: Path = Path("/")) -> CheckpointFolder | Unknown:
    (there,) = configured(f"trainer.default_local_dir={folder}", *words, tree=SAVING)
    return checkpoint_folder.collect(there, Launch(()), Machine(environ={}, root=root))


def test_new_folder_below_an_existing_one_is_not_created(tmp_path: Path) -> None:
    assert look(f"{tmp_path}/new/one") == CheckpointFolder(f"{tmp_path}/new/one", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_file_in_the_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert look(f"{tmp_path}/file/x") == CheckpointFolder(
        f"{tmp_path}/file/x", f"{tmp_path}/file", "a file is in the way"
    )


def test_proc_is_reported_as_a_kernel_folder() -> None:
    assert look("/proc/ckpt") == CheckpointFolder("/proc/ckpt", "/proc", "of the kernel")


@pytest.mark.parametrize("kind", ["proc", "cgroup2", "devpts"])
def test_every_file_system_of_the_kernel_is_recognised(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "mountinfo").write_text(f"22 27 0:21 / /mount rw - {kind} {kind} rw\n")
    assert look("/mount/x", root=tmp_path) == CheckpointFolder("/mount/x", "/mount", "of the kernel")


def test_folder_without_write_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write everywhere
    monkeypatch.setattr(file_systems, "why_refused", lambda _: "Permission denied")
    assert look(f"{tmp_path}/x") == CheckpointFolder(f"{tmp_path}/x", str(tmp_path), "no permission to write")


def test_job_that_saves_no_checkpoints_there_is_not_judged(tmp_path: Path) -> None:
    assert isinstance(look(f"{tmp_path}/x", "trainer.save_freq=-1"), Absent)
    assert isinstance(look("relative/folder"), Absent)
    submitted = Launch((), submitted="ray job submit")
    (there,) = configured(f"trainer.default_local_dir={tmp_path}", tree=SAVING)
    assert isinstance(checkpoint_folder.collect(there, submitted, Machine(environ={})), Absent)


@pytest.mark.parametrize(
    ("variables", "path", "trouble"),
    [
        ({"HF_DATASETS_CACHE": "/proc/tables"}, "/proc/tables", "of the kernel"),
        ({"HF_HOME": "/proc/hf"}, "/proc/hf/datasets", "of the kernel"),
        ({"HF_HOME": "/proc/hf", "HF_DATASETS_CACHE": "{here}/new"}, "{here}/new", ""),
        ({"HF_DATASETS_CACHE": "{here}/file/x"}, "{here}/file/x", "a file is in the way"),
        ({"HF_DATASETS_CACHE": "cache"}, None, ""),
        ({}, None, ""),
    ],
)
def test_datasets_cache_folder_is_read(
    variables: dict[str, str], path: str | None, trouble: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (there,) = configured()
    given = {name: value.format(here=tmp_path) for name, value in variables.items()}
    found = datasets_cache.collect(there, Launch(()), JobVariables(given), Machine(environ={}))
    if path is None:
        assert isinstance(found, Absent)
    else:
        assert isinstance(found, DatasetsCache)
        assert (found.path, found.trouble) == (path.format(here=tmp_path), trouble)


@pytest.mark.parametrize(
    ("loggers", "variables", "trouble"),
    [
        ("[console,tensorboard]", {"TENSORBOARD_DIR": "/proc/tb"}, "of the kernel"),
        ("tensorboard", {"TENSORBOARD_DIR": "/proc/tb"}, "of the kernel"),
        ("[console]", {"TENSORBOARD_DIR": "/proc/tb"}, None),
        ("[console,tensorboard]", {"TENSORBOARD_DIR": "logs/tb"}, None),
        ("[console,tensorboard]", {}, None),
        ("[console,file]", {"VERL_FILE_LOGGER_ROOT": "/proc/logs"}, "of the kernel"),
        ("[tensorboard,file]", {"TENSORBOARD_DIR": "/tmp", "VERL_FILE_LOGGER_ROOT": "/proc/logs"}, "of the kernel"),
        ("[file]", {"VERL_FILE_LOGGER_ROOT": "/proc/logs", "VERL_FILE_LOGGER_PATH": "/tmp/log"}, None),
        ("[tensorboard]", {"VERL_FILE_LOGGER_ROOT": "/proc/logs"}, None),
    ],
)  # fmt: skip
def test_folders_of_trackers_are_read(loggers: str, variables: dict[str, str], trouble: str | None) -> None:
    there = configured(f"++trainer.logger={loggers}")[0]
    found = tracker_folder.collect(there, Launch(()), JobVariables(variables), Machine(environ={}))
    assert getattr(found, "trouble", None) == trouble


def test_missing_folder_of_the_timeline_is_reported_unless_the_script_creates_it(tmp_path: Path) -> None:
    (job,) = configured(f"+{TIMELINE}=traces/t.json")
    machine = Machine(environ={}, cwd=tmp_path)
    folder = str(tmp_path / "traces")
    assert timeline_file.collect(job, Launch(()), machine) == TimelineFile("traces/t.json", folder, True)
    for made in (Launch((), made=(folder,)), Launch((), folders=(f"{folder}/first",))):
        assert timeline_file.collect(job, made, machine) == TimelineFile("traces/t.json")
    (tmp_path / "traces").mkdir()
    assert timeline_file.collect(job, Launch(()), machine) == TimelineFile("traces/t.json")
    assert isinstance(timeline_file.collect(configured()[0], Launch(()), machine), Absent)


@pytest.mark.parametrize(("program", "judged"), [("sft_trainer", True), ("main_ppo", False)])
def test_copies_of_checkpoints_of_a_fine_tuning_job(tmp_path: Path, program: str, *, judged: bool) -> None:
    (tmp_path / "file").touch()
    machine = Machine(environ={}, cwd=tmp_path)
    for name, trouble in (("file", "a file is in the way"), ("new", "")):
        (job,) = configured(f"+trainer.default_hdfs_dir={tmp_path}/{name}")
        found = backup_folder.collect(
            replace(job, program=f"/env/verl/trainer/{program}.py"), Launch(()), machine
        )
        assert isinstance(found, BackupFolder) is judged
        assert not judged or found.trouble == trouble


@pytest.mark.parametrize(
    ("words", "variables", "missing"),
    [
        ((), {}, ""),
        (("trainer.experiment_name=qwen/first",), {}, "tune/qwen"),
        (("trainer.experiment_name=qwen/first", "trainer.project_name=made"), {}, ""),
        (("trainer.experiment_name=qwen/first", "hydra.job.chdir=True"), {}, ""),
        (("trainer.experiment_name=qwen/first", "hydra.run.dir=tune/qwen"), {}, ""),
        (("trainer.project_name=team/tune",), {}, ""),
        (("trainer.experiment_name=qwen/first",), {"VERL_FILE_LOGGER_ROOT": "~/logs"}, ""),
        ((), {"VERL_FILE_LOGGER_PATH": "@/gone/a.jsonl"}, "gone"),
        ((), {"VERL_FILE_LOGGER_PATH": "@/made/a.jsonl"}, ""),
        ((), {"VERL_FILE_LOGGER_PATH": "@/gone/a.jsonl", "TENSORBOARD_DIR": "@/gone/tb"}, ""),
        (("trainer.logger=[console]",), {"VERL_FILE_LOGGER_PATH": "@/gone/a.jsonl"}, ""),
    ],
)
def test_file_of_metrics_needs_its_folder(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], missing: str
) -> None:
    (tmp_path / "made" / "qwen").mkdir(parents=True)
    names = {"logger": ["console", "file"], "project_name": "tune", "experiment_name": "first"}
    (there,) = configured(*words, tree={"trainer": names, "hydra": {"run": {"dir": "outputs"}, "job": {}}})
    job = JobVariables({name: value.replace("@", str(tmp_path)) for name, value in variables.items()})
    found = metrics_file.collect(there, Launch(()), job, Machine(environ={}, cwd=tmp_path))
    expected = str(tmp_path / missing) if missing else ""
    assert (found.missing_folder if isinstance(found, MetricsFile) else "") == expected
    made = Launch((), folders=(str(tmp_path / "gone"), str(tmp_path / "tune/qwen/3b")))
    found = metrics_file.collect(there, made, job, Machine(environ={}, cwd=tmp_path))
    assert not isinstance(found, MetricsFile) or found.missing_folder == ""


@pytest.mark.parametrize(
    ("folder", "makeable"), [("@/gone", True), ("/proc/gone", False), ("/gone/logs", False)]
)
def test_folder_is_made_only_where_the_user_can_make_it(
    tmp_path: Path, folder: str, *, makeable: bool
) -> None:
    path = folder.replace("@", str(tmp_path))
    (job,) = configured(f"+{TIMELINE}={path}/t.json")
    found = timeline_file.collect(job, Launch(()), Machine(environ={}, cwd=tmp_path))
    assert found == TimelineFile(f"{path}/t.json", path, makeable)
    (finding,) = checkpoint_folder_unusable.judge(job, *[Unknown("")] * 5, found, *[Unknown("")] * 4)
    assert (finding.fix == "output-folder-made") is makeable
