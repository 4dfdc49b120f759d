"""Where there is no verl, nothing is a success: one sentence, and exit code 3."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.running import Doctor

SENTENCE = "NOT CHECKED  no verl was found, neither in this environment nor in the current folder or above it"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("check", "run.sh", "--select", "CFG"),
        ("run.sh",),
        ("fix", "run.sh"),
        ("checklist", "run.sh"),
        ("script", "run.sh", "--debug"),
        ("report", "--format", "text"),
        ("guard",),
        ("guard", "--agree"),
    ],
)
def test_judging_command_without_verl_exits_with_3(
    here: Doctor, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main_ppo data.train_batchsize=4\n")
    done = here(*words, cwd=tmp_path)
    assert done.returncode == 3
    assert SENTENCE in done.stdout + done.stderr
    assert not (tmp_path / "verl-doctor.lock").exists()


@pytest.mark.slow
def test_climb_without_a_job_proves_nothing(here: Doctor, tmp_path: Path) -> None:
    done = here("smoke", "--up-to", "1", cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 3
    assert SENTENCE in done.stdout


@pytest.mark.slow
def test_rules_that_need_no_verl_are_judged(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main_ppo 'a b'=(\n")
    assert here("check", "run.sh", cwd=tmp_path).returncode == 1
    assert here("check", "--select", "PY100", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "words", [("explain", "VLLM101"), ("undo", "--list"), ("clean",), ("actors",), ("logs", "run.log")]
)
def test_other_commands_work_without_verl(here: Doctor, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "run.log").write_text("step 1\n")
    done = here(*words, cwd=tmp_path)
    assert "no verl was found" not in done.stdout + done.stderr


def test_variables_of_unknown_workers_are_not_reported_as_equal(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main_ppo\n")
    assert here("explain", "variables", "run.sh", cwd=tmp_path).stdout.startswith("UNKNOWN  ")
