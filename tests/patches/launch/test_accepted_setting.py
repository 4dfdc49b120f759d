"""The settings with which construction accepts the job are written into the launch script."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import TREE
from verl_doctor.patches.launch.accepted_setting import accepted_setting
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.construction.accepted import Accepted, Setting
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding, Location
from verl_doctor.toolkit.target import Target

ACTOR = "actor_rollout_ref.actor"
SCRIPT = f"""python3 -m verl.trainer.main_ppo \\
  trainer.nnodes=1 \\
  {ACTOR}.ppo_mini_batch_size='5' \\
  +{ACTOR}.options='{{momentum: 0.9, amsgrad: False}}' \\
  "$@"
"""


def plan(script: Path, *settings: Setting, unclear: tuple[str, ...] = ()) -> list[Change] | Refusal:
    script.write_text(SCRIPT)
    read = launch.collect(Target(Path("/p"), "--python", files=(script,)), Machine(environ={}))
    assert isinstance(read, Launch)
    assert read.command
    tree = Configuration("/verl/main_ppo.py", "/verl/config", "ppo_trainer", before=TREE, after=TREE)
    there = with_overrides(tree, [word for word in read.command.words if word.text])
    finding = Finding("it fails", Evidence("x"), location=Location(str(script), 3))
    found = Accepted(settings, tried=7, seconds=21.4, unclear=unclear)
    return accepted_setting.plan(
        finding, accepted=found, configuration=there, launch=read, sources=SourceFiles(), marker=Marker()
    )


@pytest.mark.parametrize(
    ("setting", "old", "new"),
    [
        (Setting(f"{ACTOR}.ppo_mini_batch_size", 4), f"{ACTOR}.ppo_mini_batch_size='5'", f"{ACTOR}.ppo_mini_batch_size='4'"),
        (Setting(f"{ACTOR}.ppo_mini_batch_size", left_out=True), f"  {ACTOR}.ppo_mini_batch_size='5' \\\n", ""),
        (Setting(f"{ACTOR}.options", {"amsgrad": False}), "{momentum: 0.9, amsgrad: False}", "{amsgrad:False}"),
    ],
)  # fmt: skip
def test_line_is_edited_in_the_style_of_the_user_and_the_old_one_kept(
    setting: Setting, old: str, new: str, tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    changes = plan(script, setting)
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    lines = change.after.decode().splitlines(keepends=True)
    assert "".join(line for line in lines if not line.lstrip().startswith("#")) == SCRIPT.replace(old, new)
    assert "# verl-doctor: BUILD" in change.after.decode()
    assert change.why.startswith("construction accepts the job with this (7 configurations tried in 21 s); ")
    assert "this changes the training" in change.why


def test_line_to_edit_is_named_if_nothing_was_found(tmp_path: Path) -> None:
    refused = plan(tmp_path / "run.sh")
    assert isinstance(refused, Refusal)
    assert refused.reason == (
        f"no other setting of the script heals it (7 configurations tried in 21 s); edit {tmp_path}/run.sh:3 by hand"
    )


def test_word_that_adds_a_key_is_described_as_not_set(tmp_path: Path) -> None:
    changes = plan(tmp_path / "run.sh", Setting(f"{ACTOR}.options", left_out=True))
    assert isinstance(changes, list)
    assert isinstance(changes[0], ReplaceFile)
    assert f"{ACTOR}.options is not set instead of " in changes[0].why


def test_fix_is_unsafe_and_tried_last() -> None:
    assert (accepted_setting.safety, accepted_setting.last_resort) == ("unsafe", True)


def test_names_that_may_be_meant_are_listed(tmp_path: Path) -> None:
    refused = plan(tmp_path / "run.sh", unclear=("own_async", "other_async"))
    assert isinstance(refused, Refusal)
    assert refused.reason == f"it may mean own_async or other_async; edit {tmp_path}/run.sh:3 by hand"
