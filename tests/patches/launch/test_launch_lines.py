"""Fixes of launch files for unread and misspelled variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.variables.variable_misspelt import variable_misspelt as misspelt_rule
from verl_doctor.checks.variables.variable_removed import variable_removed as removed_rule
from verl_doctor.patches.launch.variable_misspelt import variable_misspelt
from verl_doctor.patches.launch.variable_removed import variable_removed
from verl_doctor.toolkit.change import Change, Fix, Refusal, ReplaceFile, SetVariable
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.repair.plan import with_reason
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.target import Target

DEAD = VariableReaders((Reading("VLLM_USE_V1", "vllm"), Reading("VLLM_PROT", "vllm", near="VLLM_PORT")))


def plan(rule: Check, fix: Fix, *files: Path, **shell: str) -> list[Change] | Refusal:
    """Let the rule find, and the fix plan for its only finding, where the shell has these variables."""
    read = launch.collect(Target(Path("/p"), "--python", files=files), Machine(environ={}))
    assert isinstance(read, Launch) == bool(files)
    variables = Variables({name: value for name, value in shell.items() if value}, tuple(shell))
    known = {
        "readers": DEAD,
        "variables": variables,
        "launch": read,
        "vllm": Absent(""),
        "packages": Absent(""),
    }
    (finding,) = rule.judge(**{need.parameter: known[need.parameter] for need in rule.needs})
    assert finding.fix == fix.id
    changes = fix.plan(
        finding, launch=read, readers=DEAD, variables=variables, sources=SourceFiles(), marker=Marker()
    )
    return changes if isinstance(changes, Refusal) else [with_reason(change, finding) for change in changes]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_every_file_that_sets_the_variable_is_edited(tmp_path: Path) -> None:
    script = write(tmp_path / "run.sh", "export VLLM_USE_V1=1\npython -m verl.trainer.main_ppo a=1\n")
    image = write(tmp_path / "Dockerfile", "FROM a\nENV VLLM_USE_V1 1\n")
    environment = write(tmp_path / "env.yaml", "env_vars:\n  VLLM_USE_V1: '1'\n  A: b\n")
    changes = plan(removed_rule, variable_removed, script, image, environment)
    assert isinstance(changes, list)
    after = {change.path.name: change.after for change in changes if isinstance(change, ReplaceFile)}
    mark = b"# verl-doctor: ENV101\n"
    assert after == {
        "run.sh": b"# export VLLM_USE_V1=1  " + mark + b"python -m verl.trainer.main_ppo a=1\n",
        "Dockerfile": b"FROM a\n# ENV VLLM_USE_V1 1  " + mark,
        "env.yaml": b"env_vars:\n  # VLLM_USE_V1: '1'  " + mark + b"  A: b\n",
    }


def test_sourced_file_is_edited_in_place(tmp_path: Path) -> None:
    write(tmp_path / "env.sh", "export VLLM_USE_V1=1\n")
    script = write(tmp_path / "run.sh", f"source {tmp_path}/env.sh\npython -m verl.trainer.main_ppo a=1\n")
    changes = plan(removed_rule, variable_removed, script)
    assert isinstance(changes, list)
    assert [change.path.name for change in changes if isinstance(change, ReplaceFile)] == ["env.sh"]


def test_name_is_corrected(tmp_path: Path) -> None:
    script = write(tmp_path / "run.sh", "a\nVLLM_PROT=1 \\\n  python -m verl.trainer.main_ppo a=1\n")
    changes = plan(misspelt_rule, variable_misspelt, script)
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    assert change.after == (
        b"a\n# VLLM_PROT=1 \\  # verl-doctor: ENV102\nVLLM_PORT=1 \\\n  python -m verl.trainer.main_ppo a=1\n"
    )


def test_variable_inherited_from_the_shell_is_unset() -> None:
    changes = plan(removed_rule, variable_removed, VLLM_USE_V1="1")
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, SetVariable)
    assert (change.name, change.value) == ("VLLM_USE_V1", None)
    assert "has no effect" in change.why


def test_file_and_shell_are_repaired_together(tmp_path: Path) -> None:
    script = write(tmp_path / "run.sh", "export VLLM_USE_V1=1\npython -m verl.trainer.main_ppo a=1\n")
    changes = plan(removed_rule, variable_removed, script, VLLM_USE_V1="0")
    assert isinstance(changes, list)
    assert [type(change) for change in changes] == [ReplaceFile, SetVariable]


def test_misspelled_shell_variable_is_renamed() -> None:
    changes = plan(misspelt_rule, variable_misspelt, VLLM_PROT="80")
    assert isinstance(changes, list)
    assert [(change.name, change.value) for change in changes if isinstance(change, SetVariable)] == [
        ("VLLM_PORT", "80"),
        ("VLLM_PROT", None),
    ]


def test_unread_value_is_not_renamed() -> None:
    refusal = plan(misspelt_rule, variable_misspelt, VLLM_PROT="")
    assert isinstance(refusal, Refusal)
    assert "may be a secret" in refusal.reason


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "run.sh",
            "VLLM_USE_V1=1 python -m verl.trainer.main_ppo a=1\n",
            "without changing the code around it",
        ),
        ("run.sh", "VLLM_USE_V1=1 \\\npython -m verl.trainer.main_ppo a=1\n", "part of a longer command"),
        ("env.json", '{"env_vars": {"VLLM_USE_V1": "1", "A": "b"}}', "JSON has no comments"),
    ],
)
def test_variable_without_a_separate_line_is_refused(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    refusal = plan(removed_rule, variable_removed, write(tmp_path / name, text))
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason
