"""What is left out of the package that Ray uploads, and what never is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from verl_doctor.checks.shared.launch_examples import COMMAND, GOOD
from verl_doctor.patches.launch.leave_out_of_package import leave_out_of_package
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.ray.package import PackagePart, RayPackage
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding

MIB = 1 << 20
FOUND = Finding("too large", Evidence("1 GiB"))
PARTS = (
    PackagePart("ckpt/", 300 * MIB),
    PackagePart("data/train.parquet", 200 * MIB),
    PackagePart("old[1].pt", 90 * MIB),
    PackagePart("wandb/", 60 * MIB),
)


def planned(folder: Path, launch: Launch = GOOD, limit: int = 100, **other: object) -> list[Change] | Refusal:
    path = folder / "env.yaml"
    path.write_text("working_dir: ./\nexcludes: ['/.git/']\n")
    size = sum(part.size for part in PARTS)
    package = RayPackage(str(folder), str(path), 1, size, 9, limit * MIB, parts=PARTS, listed_in=str(path))
    package = replace(package, **other)  # type: ignore[arg-type]
    return leave_out_of_package.plan(FOUND, package, launch, SourceFiles(), Marker())


def excluded(changes: list[Change] | Refusal) -> list[str]:
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    return list(yaml.safe_load(change.after)["excludes"])


def training_with(*words: str) -> Launch:
    parsed = tuple(Word(text, "run.sh", 2) for text in words)
    return replace(GOOD, command=replace(COMMAND, words=parsed))


def test_only_as_much_as_necessary_is_excluded(tmp_path: Path) -> None:
    assert excluded(planned(tmp_path, limit=400)) == ["/.git/", "/ckpt/"]


def test_files_named_by_the_job_are_included(tmp_path: Path) -> None:
    launch = training_with("data.train_files=['./data/train.parquet']")
    assert excluded(planned(tmp_path, launch, limit=300)) == ["/.git/", "/ckpt/", "/wandb/"]
    launch = training_with("actor_rollout_ref.model.path=ckpt/step_9/huggingface")
    assert excluded(planned(tmp_path, launch, limit=400)) == ["/.git/", "/data/train.parquet", "/wandb/"]


def test_insufficient_exclusion_is_refused(tmp_path: Path) -> None:
    refusal = planned(tmp_path, training_with("data.train_files=data/train.parquet"), limit=100)
    assert isinstance(refusal, Refusal)
    assert isinstance(planned(tmp_path, limit=400, whole=False), Refusal)


def test_text_is_shown_without_a_file_to_edit(tmp_path: Path) -> None:
    refusal = planned(tmp_path, limit=400, listed_in="")
    assert isinstance(refusal, Refusal)
    assert refusal.reason.endswith(".gitignore: /ckpt/")
