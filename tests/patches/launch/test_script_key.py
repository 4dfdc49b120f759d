"""Correcting the keys of a launch script."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.configuration.config_key_unknown import config_key_unknown
from verl_doctor.checks.shared.configuration import TREE
from verl_doctor.patches.launch.script_key import script_key
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.target import Target

START = "python3 -m verl.trainer.main_ppo \\\n    trainer.nnodes=1 \\\n"


def look(path: Path, script: str) -> tuple[Launch, Configuration, list[Finding]]:
    path.write_text(script)
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(read, Launch)
    assert read.command
    tree = Configuration("/verl/main_ppo.py", "/verl/config", "ppo_trainer", before=TREE, verl="0.6.1")
    there = with_overrides(tree, read.command.words)
    return read, there, list(config_key_unknown.judge(there))


def plan(path: Path, script: str) -> list[Change] | Refusal:
    read, there, (finding,) = look(path, script)
    assert finding.fix == script_key.id
    return script_key.plan(finding, launch=read, configuration=there, sources=SourceFiles(), marker=Marker())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ray_init.num_cpus=8", "ray_kwargs.ray_init.num_cpus=8"),
        ("'ray_init.num_cpus=8'", "'ray_kwargs.ray_init.num_cpus=8'"),
        (
            "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=1",
            "+actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=1",
        ),
        (
            "actor_rollout_ref.model.override_config.attn=sdpa",
            "+actor_rollout_ref.model.override_config.attn=sdpa",
        ),
    ],
)
def test_unambiguous_key_is_written(tmp_path: Path, old: str, new: str) -> None:
    changes = plan(tmp_path / "run.sh", f"{START}    {old} \\\n    data.train_batch_size=8\n")
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    mark = "# verl-doctor: CFG101"
    assert change.after.decode() == f"# {old} \\  {mark}\n{START}    {new} \\\n    data.train_batch_size=8\n"
    assert look(tmp_path / "after.sh", change.after.decode())[2] == []


@pytest.mark.parametrize(
    ("guess", "offered"),
    [
        ("trainer.n_gpu_per_node=8", ["script-word"]),
        ("trainer.nothing=1", ["script-word-changed"]),
        ("++ray_init.num_cpus=8", []),
    ],
)
def test_guess_is_left_to_other_fixes(tmp_path: Path, guess: str, offered: list[str]) -> None:
    _, _, findings = look(tmp_path / "run.sh", f"{START}    {guess}\n")
    assert [finding.fix for finding in findings] == offered


def test_composed_key_is_refused(tmp_path: Path) -> None:
    refusal = plan(tmp_path / "run.sh", f"P=ray_init\n{START}    $P.num_cpus=8\n")
    assert isinstance(refusal, Refusal)
    assert "does not contain ray_init.num_cpus exactly once" in refusal.reason


def test_two_keys_on_one_line_are_corrected_in_turn(tmp_path: Path) -> None:
    free = "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=1"
    read, there, findings = look(tmp_path / "run.sh", f"{START}    ray_init.num_cpus=8 {free}\n")
    for finding, end in zip(findings, (f"ray_kwargs.ray_init.num_cpus=8 {free}", f"=8 +{free}"), strict=True):
        changes = script_key.plan(
            finding, launch=read, configuration=there, sources=SourceFiles(), marker=Marker()
        )
        assert isinstance(changes, list)
        assert isinstance(changes[0], ReplaceFile)
        assert changes[0].after.decode().endswith(f"{end}\n")
