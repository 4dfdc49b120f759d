"""The examined interpreter, and the reason shown for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.engine.script_interpreter import interpreter_of
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Options, Target


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment with these packages, and return its interpreter."""
    site = folder / "lib" / "python3.11" / "site-packages"
    for package in packages:
        (site / package).mkdir(parents=True)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "activate").write_text("deactivate () { :; }\n")
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    return python


def found(cwd: Path, *launch: str, **environ: str) -> Target:
    return discover(Options(launch=launch), Machine(cwd=cwd, environ=environ))


def test_nearest_venv_is_used_if_none_is_active(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv", "verl")
    (tmp_path / "job" / "deep").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "job" / "deep"):
        target = found(folder)
        assert (target.python, target.chosen_by, target.arguments) == (python, ".venv", ())


def test_active_environment_wins_over_a_venv(tmp_path: Path) -> None:
    environment(tmp_path / ".venv", "verl")
    active = environment(tmp_path / "active", "torch")
    target = found(tmp_path, VIRTUAL_ENV=str(tmp_path / "active"))
    assert (target.python, target.passed_over) == (active, "")


def test_environment_of_the_job_wins_over_an_active_conda_base(tmp_path: Path) -> None:
    base, venv = (
        environment(tmp_path / "base", "conda"),
        environment(tmp_path / ".venv", "verl-0.6.1.dist-info"),
    )
    target = found(tmp_path, CONDA_PREFIX=str(tmp_path / "base"))
    assert target.python == venv
    assert target.passed_over.startswith(f"{base} contains none of ")
    (venv.parents[1] / "lib" / "python3.11" / "site-packages" / "verl-0.6.1.dist-info").rmdir()
    assert found(tmp_path, CONDA_PREFIX=str(tmp_path / "base")).python == base


def test_world_writable_venv_is_not_run(tmp_path: Path) -> None:
    environment(tmp_path / ".venv", "verl")
    (tmp_path / ".venv").chmod(0o777)
    target = found(tmp_path)
    assert target.chosen_by == "verl-doctor's own"
    assert "anybody may write to" in target.passed_over


@pytest.mark.parametrize(
    "place", ["bin", "lib", "lib/python3.11", "lib/python3.11/site-packages", "pyvenv.cfg", "bin/python"]
)
def test_venv_of_which_others_may_write_a_part_is_not_run(tmp_path: Path, place: str) -> None:
    python = environment(tmp_path / ".venv", "verl")
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if place == "bin/python":
        python.unlink()
        python.write_text("#!/bin/sh\n")
    (tmp_path / ".venv" / place).chmod(0o777)
    target = found(tmp_path)
    assert target.chosen_by == "verl-doctor's own"
    assert f"anybody may write to {tmp_path / '.venv' / place}" in target.passed_over


@pytest.mark.parametrize(
    "line",
    [
        "source @/bin/activate",
        ". @/bin/activate\npython3 -m verl.trainer.main_ppo",
        "VENV=@\nsource $VENV/bin/activate && python -m verl.trainer.main_ppo",
        "@/bin/python -m verl.trainer.main_ppo",
        "PYTHON=${PYTHON:-@/bin/python3}\n$PYTHON -m verl.trainer.main_ppo",
        "srun --nodes 2 @/bin/torchrun -m verl.trainer.main_ppo",
        "conda activate @",
        "conda activate train",
        "conda run -n train python -m verl.trainer.main_ppo",
    ],
)
def test_launch_script_names_the_environment(tmp_path: Path, line: str) -> None:
    python = environment(tmp_path / "envs" / "train", "verl")
    (python.parent / "python3").symlink_to(sys.executable)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{tmp_path / 'envs' / 'train'}\n")
    (tmp_path / "run.sh").write_text(line.replace("@", str(tmp_path / "envs" / "train")) + "\n")
    target = found(tmp_path, "run.sh", HOME=str(tmp_path))
    assert target.python.parent == python.parent
    assert target.chosen_by == "launch script"
    assert target.arguments[:2] == ("--python", str(target.python))


@pytest.mark.parametrize(
    "line",
    ["source nowhere/bin/activate", "conda activate", "conda activate nowhere", "python -m x", "conda run"],
)
def test_undetermined_interpreter_in_a_script_is_not_guessed(tmp_path: Path, line: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{line}\n")
    assert interpreter_of(script, Machine(cwd=tmp_path, environ={"HOME": str(tmp_path)})) is None


@pytest.mark.slow
def test_first_line_names_the_examined_environment_and_the_reason(here: Doctor, tmp_path: Path) -> None:
    python = environment(tmp_path / "envs" / "train", "verl")
    (tmp_path / "run.sh").write_text(f"set -e\n{python} -m verl.trainer.main_ppo\n")
    output = here("check", "--select", "PY100", "run.sh", cwd=tmp_path).stderr
    assert f"{python} (named in the launch script, run.sh:2)" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to create another user's files")
@pytest.mark.parametrize(
    "line", ["source @/bin/activate", "@/bin/python -m verl.trainer.main_ppo", "source lines.sh"]
)
def test_another_users_script_does_not_choose_what_is_run(tmp_path: Path, line: str) -> None:
    theirs = tmp_path / "theirs"
    python = environment(theirs, "verl")
    script, lines = tmp_path / "run.sh", tmp_path / "lines.sh"
    script.write_text(line.replace("@", str(theirs)) + "\n")
    lines.write_text(f"source {theirs}/bin/activate\n")
    assert found(tmp_path, "run.sh").python == python
    os.chown(theirs, 65534, 65534)
    assert found(tmp_path, "run.sh").python == python, (
        "a script of this user's may choose a colleague's environment"
    )
    os.chown(lines if "lines" in line else script, 65534, 65534)
    target = found(tmp_path, "run.sh")
    assert target.chosen_by == "verl-doctor's own"
    assert f"{python} of the launch script is not used" in target.passed_over
    assert f"{theirs} belongs to user 65534" in target.passed_over
    os.chown(theirs, 0, 0)
    assert found(tmp_path, "run.sh").python == python, (
        "a colleague's script may choose an environment of this user's"
    )
