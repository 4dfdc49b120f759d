"""`undo` when the changes of a target are in two journals: the environment's, and the user's own."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
from running import doctor

from verl_doctor.toolkit import apply
from verl_doctor.toolkit.change import NewFile
from verl_doctor.toolkit.target import Target, journal_homes


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    prefix = tmp_path / "env"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(prefix)
    return prefix


@pytest.fixture
def made(environment: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two files that the doctor made, the older one in the environment; both transactions are number 1."""
    inside, outside = environment / "inside.txt", tmp_path / "outside.txt"
    for path, home in zip((inside, outside), journal_homes(target(environment)), strict=True):
        assert apply.apply([NewFile(path, b"new\n")], home, fix="welcome", code="HOST950") is not None
    return inside, outside


def target(environment: Path) -> Target:
    return Target(environment / "bin" / "python", "--python")


def undo(environment: Path, *arguments: str) -> tuple[int, str]:
    done = doctor("undo", *arguments, "--python", environment / "bin/python", cwd=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_a_number_that_both_have_must_be_named_in_full(environment: Path, made: tuple[Path, Path]) -> None:
    inside, outside = made
    code, said = undo(environment, "1")
    assert code == 1
    assert "is in two journals" in said
    assert inside.exists()
    assert outside.exists()
    home = journal_homes(target(environment))[0]
    assert undo(environment, f"{home}/0001")[0] == 0
    assert not inside.exists()
    assert outside.exists()


def test_without_a_name_the_last_change_goes_first(environment: Path, made: tuple[Path, Path]) -> None:
    inside, outside = made
    assert undo(environment)[0] == 0
    assert (inside.exists(), outside.exists()) == (True, False)
    assert undo(environment)[0] == 0
    assert not inside.exists()
    code, said = undo(environment)
    assert code == 1
    assert "nothing" in said


def test_all_takes_back_both(environment: Path, made: tuple[Path, Path]) -> None:
    listed = undo(environment, "--list")[1]
    assert listed.count("HOST950") == len(made)
    assert undo(environment, "--all")[0] == 0
    assert not any(path.exists() for path in made)


def test_a_number_that_is_not_there_is_a_sentence(environment: Path, made: tuple[Path, Path]) -> None:
    code, said = undo(environment, "7")
    assert code == 1
    assert "7" in said
    assert all(path.exists() for path in made)


def test_the_journal_of_a_system_python_lies_in_the_users_folder() -> None:
    inside, outside = journal_homes(Target(Path(sys.base_prefix, "bin", "python3"), "--python"))
    assert inside == outside
