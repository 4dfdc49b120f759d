"""Whether the interpreter that a script names by its path has what the job needs. It is never started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.script_python import ScriptPython, script_python
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

EXAMINED = Target(Path("/env/bin/python"), chosen_by="--python")


def environment(top: Path, *packages: str) -> Path:
    """Create an environment whose interpreter is a binary that would fail, and return that."""
    site = top / "lib" / "python3.11" / "site-packages"
    for name in packages:
        (site / name).mkdir(parents=True)
    python = top / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    return python


def look(
    tmp_path: Path,
    *names: str,
    target: Target = EXAMINED,
    variables: JobVariables | None = None,
    module: str = "verl.trainer.main_ppo",
) -> ScriptPython | Unknown:
    launch = Launch((), command=Command(module, (), "/home/me/run.sh", 3, names=names))
    (tmp_path / "cwd").mkdir(exist_ok=True)
    machine = Machine(environ={"HOME": str(tmp_path / "home")}, cwd=tmp_path / "cwd")
    return script_python.collect(launch, target, variables or JobVariables(), machine)


def lacks(found: ScriptPython | Unknown) -> str:
    assert isinstance(found, ScriptPython), found
    return found.lacks


def test_packages_of_the_named_interpreter_are_looked_up(tmp_path: Path) -> None:
    none, one, both = (environment(tmp_path / name, *has) for name, has in (("a", ()), ("b", ("verl",)), ("c", ("verl", "torch"))))  # fmt: skip
    assert look(tmp_path, str(none)) == ScriptPython(str(none), "/home/me/run.sh", 3, "verl")
    assert lacks(look(tmp_path, "env", str(one))) == "torch"
    assert lacks(look(tmp_path, str(both))) == ""


@pytest.mark.parametrize("place", ["cwd", "home/.local/lib/python3.11/site-packages", "code"])
def test_checkouts_and_packages_of_the_user_count(tmp_path: Path, place: str) -> None:
    for name in ("verl", "torch"):
        (tmp_path / place / name).mkdir(parents=True)
    on_path = JobVariables({"PYTHONPATH": str(tmp_path / "code")})
    assert lacks(look(tmp_path, str(environment(tmp_path / "env")), variables=on_path)) == ""


def test_folders_that_pth_files_add_count(tmp_path: Path) -> None:
    python = environment(tmp_path / "env", "torch")
    (tmp_path / "code" / "verl").mkdir(parents=True)
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    (site / "code.pth").write_text(f"# added by hand\nimport sys\n{tmp_path / 'code'}\n")
    assert lacks(look(tmp_path, str(python))) == ""


@pytest.mark.parametrize("names", [("python3",), ("apptainer", "PYTHON"), ("PYTHON.sh",), ("MISSING",)])
def test_other_programs_are_not_judged(tmp_path: Path, names: tuple[str, ...]) -> None:
    python = environment(tmp_path / "env")
    shutil.copy(python, f"{python}.sh")
    places = {"PYTHON": str(python), "PYTHON.sh": f"{python}.sh", "MISSING": f"{tmp_path}/python3"}
    assert isinstance(look(tmp_path, *(places.get(name, name) for name in names)), Absent)


def test_wrapper_in_place_of_an_interpreter_is_not_judged(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    python.write_text('#!/bin/sh\nexec /other/bin/python3 "$@"\n')
    assert isinstance(look(tmp_path, str(python)), Absent)


def test_examined_interpreter_and_programs_of_others_are_not_judged(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    here = Target(python.with_name("python"), chosen_by="--python")
    assert isinstance(look(tmp_path, str(python), target=here), Absent)
    assert isinstance(look(tmp_path, str(python), module="train.py"), Absent)


def test_shared_packages_and_an_unknown_path_are_not_judged(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    unclear = JobVariables(undetermined=("PYTHONPATH",))
    assert isinstance(look(tmp_path, str(python), variables=unclear), Unknown)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = true\n")
    assert isinstance(look(tmp_path, str(python)), Unknown)
