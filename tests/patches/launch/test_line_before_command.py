"""Lines before the training command, and variables in single quotes; bash itself is the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from verl_doctor.patches.launch.double_quotes import double_quotes
from verl_doctor.patches.launch.exported_variable import exported_variable
from verl_doctor.patches.launch.on_python_path import on_python_path
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModule, MissingModules
from verl_doctor.toolkit.edit.command_edit import with_line_before
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Subject
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.target import Target

START = "python3 -m verl.trainer.main_ppo \\\n  trainer.nnodes=1"


def read(path: Path, script: str) -> Launch:
    path.write_text(script)
    found = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(found, Launch)
    assert found.command
    return found


def after(changes: list[Change] | Refusal) -> str:
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    return change.after.decode()


def printed(script: str, **variables: str) -> str:
    """Run a script in which the command prints its words and the variables that it gets."""
    prints = "python3() { printf '%s\\n' \"$@\"; env; }\n"
    ran = subprocess.run(
        ["bash", "-c", prints + script],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **variables},
        check=True,
    )
    return ran.stdout


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, "/my rewards"), ({"PYTHONPATH": "/given"}, "/given:/my rewards")],
)
@pytest.mark.parametrize("script", [f"{START}\n", f"if true; then\n  {START}\nfi\n"])
def test_folder_comes_last_on_the_path(
    tmp_path: Path, script: str, variables: dict[str, str], expected: str
) -> None:
    missing = MissingModules((MissingModule("parts", "reward", "first batch", folder="/my rewards"),))
    finding = Finding("", Evidence(""), subject=Subject("setting", "reward", "parts"))
    there = read(tmp_path / "run.sh", script)
    text = after(
        on_python_path.plan(finding, modules=missing, launch=there, sources=SourceFiles(), marker=Marker())
    )
    assert f"PYTHONPATH={expected}\n" in printed(text, **variables)
    assert [row for row in text.splitlines() if "# verl-doctor" not in row] == script.splitlines()


def test_variable_is_exported_where_the_script_sets_it(tmp_path: Path) -> None:
    script = f"DATA=/here\n{START} 'data.train_files=${{oc.env:DATA}}/x'\n"
    assert "DATA=/here\n" not in printed(script)
    there = read(tmp_path / "run.sh", script)
    finding = Finding("", Evidence(""), subject=Subject("setting", "data.train_files", "DATA"))
    facts = {"launch": there, "sources": SourceFiles(), "marker": Marker()}
    assert "DATA=/here\n" in printed(after(exported_variable.plan(finding, **facts)))
    other = Finding("", Evidence(""), subject=Subject("setting", "data.train_files", "DATA,OTHER"))
    refused = exported_variable.plan(other, **facts)
    assert isinstance(refused, Refusal)
    assert "OTHER" in refused.reason


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("data.train_files='$DATA/x y'", "data.train_files=/here/x y"),
        ("'data.train_files=${DATA}/x'", "data.train_files=/here/x"),
        ("data.train_files='$OTHER/x'", ""),
        ("data.train_files='$DATA/\"x\"'", ""),
        ("data.train_files='$DATA/${trainer.nnodes}'", ""),
        ('data.train_files="$DATA/x"', ""),
    ],
)
def test_variable_in_single_quotes_is_filled_in(tmp_path: Path, word: str, given: str) -> None:
    script = f"DATA=/here\n{START} \\\n  {word}\n"
    path = tmp_path / "run.sh"
    there = read(path, script)
    finding = Finding("", Evidence(""), location=Location(str(path), 4))
    changes = double_quotes.plan(finding, launch=there, sources=SourceFiles(), marker=Marker())
    if not given:
        assert isinstance(changes, Refusal)
        return
    assert f"\n{given}\n" not in printed(script)
    assert f"\n{given}\n" in printed(after(changes))


@pytest.mark.parametrize(
    "script",
    [
        f"if test -e /nowhere; then\n  true\nelif {START}; then\n  true\nfi\n",
        f"if test -e /nowhere; then\n  true\nelse {START}\nfi\n",
    ],
)
def test_no_line_is_added_to_the_branch_above_the_command(tmp_path: Path, script: str) -> None:
    path = tmp_path / "run.sh"
    found = read(path, script)
    assert found.command
    with pytest.raises(CannotEdit, match="no line can be added"):
        with_line_before(script.encode(), str(path), found.command.line, "mkdir -p logs", "# why")
