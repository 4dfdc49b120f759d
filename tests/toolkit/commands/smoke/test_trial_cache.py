"""Trials count until their conditions change."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung
from verl_doctor.toolkit.commands.checklist.trials import first_step
from verl_doctor.toolkit.commands.smoke import trial_cache
from verl_doctor.toolkit.commands.smoke.trial_cache import Climbed, changed, keep_climb, recall
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.target import Options


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Session:
    monkeypatch.chdir(tmp_path)
    return open_session(Options())


def with_torch(version: str) -> Collection:
    return Collection((), {Packages: Packages((Distribution("torch", version, "/site/torch"),))})


def climb(**rungs: str) -> SmokeRun:
    return SmokeRun(
        "cpu", "--cpu", tuple(SmokeRung(int(name[1:]), name, state) for name, state in rungs.items())
    )  # type: ignore[arg-type]


def test_changes_are_reported() -> None:
    before = {"torch": "2.8.0", "ray": "2.49.0", "the sources of verl": "digest a"}
    assert changed(before, before) == ""
    now = {"torch": "2.9.0", "vllm": "0.12.0", "the sources of verl": "digest b"}
    assert (
        changed(before, now)
        == "torch 2.8.0 -> 2.9.0, ray 2.49.0 -> none, the sources of verl changed and 1 more"
    )


def test_climb_is_cached_with_its_conditions(run: Session) -> None:
    assert recall(run, Climbed) is None
    keep_climb(run, with_torch("2.8.0"), climb(r1="passed", r2="passed", r3="failed"))
    kept = recall(run, Climbed)
    assert kept is not None
    assert kept.conditions["torch"] == "2.8.0"


def test_climbs_in_the_same_conditions_are_merged(run: Session) -> None:
    keep_climb(run, with_torch("2.8.0"), climb(r1="passed", r2="passed", r3="failed"))
    keep_climb(run, with_torch("2.8.0"), climb(r3="passed", r4="not reached"))
    keep_climb(run, with_torch("2.8.0"), climb(r4="passed"))
    kept = recall(run, Climbed)
    assert kept is not None
    assert [(rung.number, rung.status) for rung in kept.run.rungs] == [(n, "passed") for n in (1, 2, 3, 4)]
    keep_climb(run, with_torch("2.9.0"), climb(r4="passed"))
    kept = recall(run, Climbed)
    assert kept is not None
    assert [rung.number for rung in kept.run.rungs] == [4]


def test_digest_depends_on_the_file_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    assert trial_cache.digest_of(tmp_path / "a") == trial_cache.digest_of(tmp_path / "b")
    assert "No such file" in trial_cache.digest_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("step:1 - loss:0.1\n", 1),
        ("a\n\x1b[36m(TaskRunner pid=3)\x1b[0m step:12 - loss:0.1\n", 2),
        ("step:0 - val:0.1\n", None),
        ("misstep:1 - x\nstep:1, x\n", None),
        ("x" * (2**20 - 3) + "\n step:1 - loss\n", 2),
        ("", None),
    ],
    ids=["first", "coloured", "validation", "others", "over the edge of a piece", "empty"],
)
def test_first_step_in_a_log(tmp_path: Path, text: str, line: int | None) -> None:
    log = tmp_path / "run.log"
    log.write_text(text)
    assert first_step(log) == line
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(text.encode()))
    assert first_step(tmp_path / "run.log.gz") == line
