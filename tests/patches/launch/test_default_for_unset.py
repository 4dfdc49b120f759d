"""A line that extends a variable runs under `set -u`, and gives the same value as before where the variable is set; bash itself is the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from verl_doctor.checks.configuration.launch_script_refused_by_bash import launch_script_refused_by_bash
from verl_doctor.patches.launch.default_for_unset import default_for_unset
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.target import Target

START = "python3 -m verl.trainer.main_ppo trainer.nnodes=1\n"
PRINT = 'printf "%s" "$LIBS"\n'


def look(path: Path, line: str) -> tuple[Launch, Finding]:
    path.write_text(f"set -u\n{line}\n{START}")
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(read, Launch)
    (finding,) = launch_script_refused_by_bash.judge(read)
    return read, finding


def shown(line: str, **variables: str) -> tuple[int, str]:
    ran = subprocess.run(
        ["bash", "-uc", f"{line}\n{PRINT}"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **variables},
        check=False,
    )
    return ran.returncode, ran.stdout


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        ("export LIBS=/x:$LIBS", "/x"),
        ('LIBS="$LIBS:/x"', "/x"),
        ("export LIBS=${LIBS}:/x", "/x"),
        ("LIBS=/x:$LIBS:/y", "/x:/y"),
        ('LIBS="$LIBS --flag"', " --flag"),
    ],
)
def test_extended_variable_begins_with_nothing(tmp_path: Path, line: str, alone: str) -> None:
    assert shown(line)[0] != 0
    read, finding = look(tmp_path / "run.sh", line)
    assert finding.fix == "default-for-unset"
    (change,) = default_for_unset.plan(finding, launch=read, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    first, kept, new, *rest = change.after.decode().splitlines(keepends=True)
    assert (first, kept, rest) == ("set -u\n", f"# {line}  {Marker().comment('CFG116')}\n", [START])
    assert shown(new) == (0, alone)
    assert shown(new, LIBS="/given") == shown(line, LIBS="/given")


@pytest.mark.parametrize("line", ["LIBS=/x:$OTHER", "echo $LIBS", "RUN=$LIBS LIBS=$LIBS"])
def test_variable_that_the_line_does_not_only_extend_is_left(tmp_path: Path, line: str) -> None:
    assert look(tmp_path / "run.sh", line)[1].fix is None


@pytest.mark.parametrize("line", ["LIBS=$LIBS:/x:$LIBS", "export \\\nLIBS=/x:$LIBS"])
def test_unclear_line_is_refused(tmp_path: Path, line: str) -> None:
    read, finding = look(tmp_path / "run.sh", line)
    done = default_for_unset.plan(finding, launch=read, sources=SourceFiles(), marker=Marker())
    assert isinstance(done, Refusal)
