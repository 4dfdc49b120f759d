"""An interpolation reaches Hydra unchanged in any quotes; bash itself is the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from verl_doctor.patches.launch.interpolation_for_hydra import interpolation_for_hydra
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding, Location

INTERPOLATION = "${trainer.project_name}"


def after(path: Path, script: str, line: int = 1) -> str | Refusal:
    path.write_text(script)
    finding = Finding("", Evidence(""), location=Location(str(path), line))
    changes = interpolation_for_hydra.plan(finding, sources=SourceFiles(), marker=Marker())
    if isinstance(changes, Refusal):
        return changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    return change.after.decode()


@pytest.mark.parametrize(
    ("written", "given"),
    [
        (f"a=ckpt/{INTERPOLATION}", f"a=ckpt/{INTERPOLATION}"),
        (f'"a={INTERPOLATION}/$HOME"', f"a={INTERPOLATION}/here"),
        (f'a="it\'s {INTERPOLATION}"', f"a=it's {INTERPOLATION}"),
        (f"'b={INTERPOLATION}' a={INTERPOLATION}", f"b={INTERPOLATION}\na={INTERPOLATION}"),
        ("a=${oc.env:USER}", "a=${oc.env:USER}"),
        (f"b=\\${{HOME}} \\\n  a={INTERPOLATION}", f"b=${{HOME}}\na={INTERPOLATION}"),
    ],
)
def test_bash_passes_the_interpolation_unchanged(tmp_path: Path, written: str, given: str) -> None:
    script = f"printf '%s\\n' {written}\n"
    text = after(tmp_path / "run.sh", script)
    assert isinstance(text, str)
    assert "# " in text.splitlines()[0]
    ran = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, env={"HOME": "here"}, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, given)


def test_second_of_two_backslashes_continues_no_command(tmp_path: Path) -> None:
    text = after(tmp_path / "run.sh", f"echo {INTERPOLATION} \\\\\necho {INTERPOLATION}\n", 2)
    assert isinstance(text, str)
    assert text.splitlines()[0] == f"echo {INTERPOLATION} \\\\"
    assert text.splitlines()[2] == f"echo \\{INTERPOLATION}"


def test_other_commands_are_unchanged(tmp_path: Path) -> None:
    text = after(tmp_path / "run.sh", f"echo '{INTERPOLATION}'\n# {INTERPOLATION}\necho {INTERPOLATION}\n", 3)
    assert isinstance(text, str)
    assert text.splitlines()[:2] == [f"echo '{INTERPOLATION}'", f"# {INTERPOLATION}"]
    assert isinstance(after(tmp_path / "run.sh", f"echo '{INTERPOLATION}'\n"), Refusal)


def test_no_comment_is_written_into_a_text_of_several_lines(tmp_path: Path) -> None:
    script = f'set -e\nWORDS="\n  a={INTERPOLATION}\n  b=it\'s"\nprintf %s "$WORDS"\n'
    text = after(tmp_path / "run.sh", script, line=3)
    assert isinstance(text, str)
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"\n  a={INTERPOLATION}\n  b=it's")
