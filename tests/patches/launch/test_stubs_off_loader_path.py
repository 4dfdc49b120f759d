"""Lines of launch scripts that put CUDA's stubs on the loader's path."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.libcuda import COMPAT, COMPAT_FOLDER, OWN, STUB, machine
from verl_doctor.patches.launch.stubs_off_loader_path import stubs_off_loader_path
from verl_doctor.patches.variables.driver_before_compat import driver_before_compat
from verl_doctor.patches.variables.driver_before_stub import driver_before_stub
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding, Location

STUBS = "/usr/local/cuda/lib64/stubs"
ADDS = f"export LD_LIBRARY_PATH={STUBS}:$LD_LIBRARY_PATH"


def after(plan: list[Change] | Refusal) -> str | Refusal:
    if isinstance(plan, Refusal):
        return plan
    (change,) = plan
    assert isinstance(change, ReplaceFile)
    return change.after.decode()


def arguments(folder: Path, text: str, line: int = 2) -> tuple[Finding, Launch, SourceFiles, Marker]:
    script = folder / "run.sh"
    script.write_text(text)
    finding = Finding("stubs", Evidence("stubs"), Location(str(script), line))
    return finding, Launch(((str(script), "shell script"),)), SourceFiles(), Marker("verl-doctor")


@pytest.mark.parametrize(
    "line",
    [
        ADDS,
        f'export LD_LIBRARY_PATH="{STUBS}:${{LD_LIBRARY_PATH}}"',
        f"export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:{STUBS}/",
        f"export LD_LIBRARY_PATH={STUBS}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
        f"export LD_LIBRARY_PATH={STUBS}:${{LD_LIBRARY_PATH:-}}  # against -lcuda",
        f"LD_LIBRARY_PATH={STUBS}",
        "export LD_LIBRARY_PATH=$CUDA_HOME/lib64/stubs:$LD_LIBRARY_PATH",
    ],
)
def test_line_that_only_adds_stubs_is_commented_out(tmp_path: Path, line: str) -> None:
    text = f"set -e\n{line}\npython -m verl.trainer.main_ppo\n"
    assert after(stubs_off_loader_path.plan(*arguments(tmp_path, text))) == (
        f"set -e\n# {line}  # verl-doctor: ENV105\npython -m verl.trainer.main_ppo\n"
    )


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (f"{STUBS}:/my/lib:$LD_LIBRARY_PATH", "/my/lib:$LD_LIBRARY_PATH"),
        (f"/my/lib:{STUBS}:$LD_LIBRARY_PATH", "/my/lib:$LD_LIBRARY_PATH"),
        (f"/my/lib:{STUBS}", "/my/lib"),
    ],
)
def test_other_folders_of_a_line_are_kept(tmp_path: Path, value: str, left: str) -> None:
    line = f"export LD_LIBRARY_PATH={value}"
    assert after(stubs_off_loader_path.plan(*arguments(tmp_path, f"set -e\n{line}\npython a.py\n"))) == (
        f"set -e\n# {line}  # verl-doctor: ENV105\nexport LD_LIBRARY_PATH={left}  # verl-doctor: ENV105\npython a.py\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "export LD_LIBRARY_PATH=$LD_LIBRARY_PATH",
        f"export LD_LIBRARY_PATH={STUBS} && python a.py",
        f"LD_LIBRARY_PATH={STUBS} python a.py",
        f"export LIBRARY_PATH={STUBS}",
        f"export LD_LIBRARY_PATH={STUBS}.old:$LD_LIBRARY_PATH",
    ],
)
def test_line_with_other_effects_is_refused(tmp_path: Path, line: str) -> None:
    plan = stubs_off_loader_path.plan(*arguments(tmp_path, f"set -e\n{line}\n"))
    assert isinstance(plan, Refusal)
    assert "run.sh:2" in plan.reason


def test_missing_line_is_refused(tmp_path: Path) -> None:
    assert isinstance(stubs_off_loader_path.plan(*arguments(tmp_path, "set -e\n", 2)), Refusal)


def test_stub_added_by_a_script_is_removed_with_its_line(tmp_path: Path) -> None:
    finding, launch, sources, marker = arguments(tmp_path, f"set -e\n{ADDS}\npython a.py\n")
    text = after(driver_before_stub.plan(finding, machine(STUB, OWN), launch, sources, marker))
    assert text == f"set -e\n# {ADDS}  # verl-doctor: CUDA102\npython a.py\n"


def test_older_libcuda_added_by_a_script_is_removed_with_its_line(tmp_path: Path) -> None:
    line = f"export LD_LIBRARY_PATH={COMPAT_FOLDER}:$LD_LIBRARY_PATH"
    finding, launch, sources, marker = arguments(tmp_path, f"set -e\n{line}\npython a.py\n")
    text = after(driver_before_compat.plan(finding, machine(COMPAT, OWN), launch, sources, marker))
    assert text == f"set -e\n# {line}  # verl-doctor: CUDA103\npython a.py\n"
