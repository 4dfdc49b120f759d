"""`undo` when the changes of a target are in two journals: the environment's, and the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.changes.records import new_run
from verl_doctor.toolkit.target import Target, journal_homes

Undo = Callable[..., tuple[int, str]]


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


@pytest.fixture
def undo(here: Doctor) -> Undo:
    """Run undo in the active environment, from the parent folder of both files."""

    def run_undo(environment: Path, *arguments: str) -> tuple[int, str]:
        done = here("undo", *arguments, cwd=environment.parent, VIRTUAL_ENV=str(environment))
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    return run_undo


def test_ambiguous_number_must_be_given_in_full(
    undo: Undo, environment: Path, made: tuple[Path, Path]
) -> None:
    inside, outside = made
    code, output = undo(environment, "1")
    assert code == 2
    assert "is in two journals" in output
    assert inside.exists()
    assert outside.exists()
    home = journal_homes(target(environment))[0]
    assert undo(environment, f"{home}/0001")[0] == 0
    assert not inside.exists()
    assert outside.exists()


def test_last_change_is_undone_without_a_number(
    undo: Undo, environment: Path, made: tuple[Path, Path]
) -> None:
    inside, outside = made
    assert undo(environment)[0] == 0
    assert (inside.exists(), outside.exists()) == (True, False)
    assert undo(environment)[0] == 0
    assert not inside.exists()
    code, output = undo(environment)
    assert code == 0
    assert "nothing to undo: everything here has already been undone" in output


@pytest.mark.slow
def test_all_undoes_both_journals(undo: Undo, environment: Path, made: tuple[Path, Path]) -> None:
    listed = undo(environment, "--list")[1]
    assert listed.count("HOST950") == len(made)
    assert undo(environment, "--all")[0] == 0
    assert undo(environment, "--all")[0] == 0, "nothing is left, and that is what was asked for"
    assert not any(path.exists() for path in made)


def test_unknown_number_is_one_sentence(undo: Undo, environment: Path, made: tuple[Path, Path]) -> None:
    code, output = undo(environment, "7")
    assert code == 2
    assert "no repair 7 here" in output
    assert all(path.exists() for path in made)


@pytest.mark.slow
def test_repair_of_another_target_is_kept_and_named(
    here: Doctor, environment: Path, made: tuple[Path, Path]
) -> None:
    """A tree next to the environment is another target if an interpreter is named."""
    inside, outside = made
    python = environment / "bin/python"
    assert here("undo", "--python", python, cwd=environment).returncode == 0
    assert (inside.exists(), outside.exists()) == (False, True)
    done = here("undo", "--all", "--python", python, cwd=environment)
    assert outside.exists()
    home = journal_homes(target(environment))[1]
    assert f"the last repair of another target changed {outside}: verl-doctor undo {home}/0001" in done.stderr
    listed = here("undo", "--list", "--python", python, cwd=environment).stdout
    assert f"other targets, {home}" in listed
    assert here("undo", f"{home}/0001", cwd=environment).returncode == 0
    assert not outside.exists()


def test_named_tree_is_the_only_target(here: Doctor, environment: Path, tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        (tmp_path / name / "verl").mkdir(parents=True)
        (tmp_path / name / "verl" / "__init__.py").touch()
        paths.append(tmp_path / name / "verl" / "new.txt")
        apply.apply([NewFile(paths[-1], b"")], journal_homes(target(environment))[1], fix="x", code="HOST950")
    assert here("undo", "--verl", tmp_path / "one", cwd=tmp_path).returncode == 0
    assert [path.exists() for path in paths] == [False, True]


@pytest.mark.parametrize("name", ["p/1", "p/0001", "./0001"])
def test_folder_without_a_journal_is_left_alone(here: Doctor, tmp_path: Path, name: str) -> None:
    """Even one whose files are named like those of a journal."""
    for path in ("p/nginx.new", "p/etc/q.new", "p/0001-preparing/keep", "other.new"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = here("undo", name, cwd=tmp_path)
    assert done.returncode == 1
    assert "has no journal" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_redirected_link_does_not_change_the_target_of_a_repair(
    here: Doctor, environment: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "verl").mkdir(parents=True)
        (tmp_path / name / "verl" / "__init__.py").touch()
    (tmp_path / "now").symlink_to("one")
    new = tmp_path / "now" / "verl" / "new.txt"
    apply.apply([NewFile(new, b"")], journal_homes(target(environment))[1], fix="x", code="HOST950")
    (tmp_path / "now").unlink()
    (tmp_path / "now").symlink_to("two")
    assert here("undo", "--verl", tmp_path / "two", cwd=tmp_path).returncode == 0
    assert (tmp_path / "one" / "verl" / "new.txt").exists()
    assert here("undo", "--verl", tmp_path / "one", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "one" / "verl" / "new.txt").exists()


@pytest.mark.slow
def test_parent_folder_is_not_a_target(
    undo: Undo, here: Doctor, environment: Path, made: tuple[Path, Path], tmp_path: Path
) -> None:
    """The parent folder of several trees does not select them all; a plain python3 has no folder of its own either."""
    deeper = tmp_path / "deep" / "er"
    deeper.mkdir(parents=True)
    home = journal_homes(target(environment))[1]
    apply.apply([NewFile(deeper / "new.txt", b"")], home, fix="x", code="HOST950")
    assert undo(environment)[0] == 0
    assert (deeper / "new.txt").exists()
    system = Path(sys.base_prefix, "bin", "python3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(system)
    done = here("undo", "--all", "--python", tmp_path / "bin" / "python3", cwd=tmp_path)
    assert (deeper / "new.txt").exists(), done.stdout


def test_vllm_to_judge_against_does_not_change_the_target(
    here: Doctor, environment: Path, made: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    done = here("undo", "--vllm", tmp_path, cwd=tmp_path, VIRTUAL_ENV=str(environment))
    assert done.returncode == 0
    assert not made[0].exists()


@pytest.mark.slow
def test_everything_is_undone_before_anything_is_reported(environment: Path, made: tuple[Path, Path]) -> None:
    command = f"{sys.executable} -m verl_doctor.toolkit undo --all > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True, text=True, check=False, cwd=environment.parent, timeout=300,
        env={**os.environ, "VIRTUAL_ENV": str(environment), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert not any(path.exists() for path in made)
    assert "stdout cannot be written: No space left on device" in done.stderr


def test_damaged_journal_is_not_read_as_empty(undo: Undo, environment: Path, made: tuple[Path, Path]) -> None:
    home = journal_homes(target(environment))[0]
    for entry in home.glob("0001*/*.json"):
        entry.write_text("{")
    code, output = undo(environment, "--list")
    assert code == 3
    assert str(home) in output
    assert undo(environment)[0] == 3
    assert all(path.exists() for path in made)


def test_journal_of_a_system_python_is_in_the_folder_of_the_user() -> None:
    inside, outside = journal_homes(Target(Path(sys.base_prefix, "bin", "python3"), "--python"))
    assert inside == outside


@pytest.fixture
def run_of_two(environment: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A file of the environment and a launch script changed by one run, in two journals."""
    homes = journal_homes(target(environment))
    files = environment / "module.py", tmp_path / "run.sh"
    run = new_run(homes, environment)
    for file, home in zip(files, homes, strict=True):
        file.write_bytes(b"old\n")
        change = ReplaceFile(file, b"old\n", b"new\n")
        assert apply.apply([change], home, fix="mend", code="VLLM950", run=run) is not None
    return files


def contents(files: tuple[Path, ...]) -> list[bytes]:
    return [file.read_bytes() for file in files]


@pytest.mark.parametrize(
    "words", [(), ("1",), ("0001",), ("2",), ("0002",), ("--all",), ("HOME/0001",), ("HOME/1",)]
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_run_is_undone_as_a_whole(
    here: Doctor,
    environment: Path,
    run_of_two: tuple[Path, Path],
    words: tuple[str, ...],
    elsewhere: bool,
    tmp_path: Path,
) -> None:
    """Any number and any working folder."""
    cwd = tmp_path if not elsewhere else environment / "bin"
    home = str(journal_homes(target(environment))[0])
    output = [word.replace("HOME", home) for word in words]
    done = here("undo", *output, "--python", environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert contents(run_of_two) == [b"old\n", b"old\n"]
    assert done.stdout.count("undone: ") == 1


@pytest.mark.parametrize("names_it", [True, False])
def test_list_shows_all_files_of_one_run_under_one_number(
    here: Doctor, environment: Path, run_of_two: tuple[Path, Path], tmp_path: Path, names_it: bool
) -> None:
    """Also if the target is another environment, whose journals contain only a part of the run."""
    named = ("--python", environment) if names_it else ()
    listed = here("undo", "--list", *named, cwd=tmp_path).stdout
    assert listed.count("mend") == 1
    assert "0001  " in listed
    assert "0002" not in listed
    assert all(str(file) in listed for file in run_of_two)


@pytest.mark.slow
def test_run_that_cannot_be_undone_completely_stays_whole(
    here: Doctor, environment: Path, run_of_two: tuple[Path, Path], tmp_path: Path
) -> None:
    run_of_two[0].write_bytes(b"mine\n")
    done = here("undo", "--python", environment, cwd=tmp_path)
    assert done.returncode == 1
    assert "was edited since" in done.stderr
    assert contents(run_of_two) == [b"mine\n", b"new\n"]
    kept = here("undo", "--keep-edits", "--python", environment, cwd=tmp_path)
    assert kept.returncode == 1
    assert contents(run_of_two) == [b"mine\n", b"old\n"]
    assert "These edits touch lines that the repair changed" in kept.stderr
    assert f"{run_of_two[1]}: restored" in kept.stdout
    # What was not undone can still be undone.
    run_of_two[0].write_bytes(b"new\n")
    assert here("undo", "--python", environment, cwd=tmp_path).returncode == 0
    assert contents(run_of_two) == [b"old\n", b"old\n"]


@pytest.mark.slow
def test_repair_is_undone_beside_later_edits(
    here: Doctor, environment: Path, run_of_two: tuple[Path, Path], tmp_path: Path
) -> None:
    run_of_two[0].write_bytes(b"new\nmine\n")
    refused = here("undo", "--python", environment, cwd=tmp_path)
    assert refused.returncode == 1
    command = refused.stderr.strip().rpartition(": ")[2]
    assert command.startswith("verl-doctor undo ")
    assert command.endswith(" --keep-edits")
    done = here(*command.split()[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(run_of_two) == [b"old\nmine\n", b"old\n"]
    assert f"{run_of_two[0]}: restored, later edits kept" in done.stdout
    assert f"{run_of_two[1]}: restored\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", ["3", "0003", "03"])
def test_every_listed_number_is_accepted_even_of_another_target(
    here: Doctor, environment: Path, tmp_path: Path, number: str
) -> None:
    home = journal_homes(target(environment))[1]
    deeper = tmp_path / "deep" / "er"
    deeper.mkdir(parents=True)
    for name in "abc":
        apply.apply([NewFile(deeper / name, b"")], home, fix="x", code="HOST950")
    listed = here("undo", "--list", "--python", environment, cwd=environment).stdout
    assert "  0003  " in listed
    done = here("undo", number, "--python", environment, cwd=environment)
    assert done.returncode == 0, done.stderr
    assert [(deeper / name).exists() for name in "abc"] == [True, True, False]
