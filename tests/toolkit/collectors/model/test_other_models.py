"""The folders that a job's models name beside the trained one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.model.other_models import OtherModels, other_models
from verl_doctor.toolkit.machine import Machine

_NO_LAUNCH = Launch(())
MODEL = "actor_rollout_ref.model"
PPO = "/env/verl/trainer/main_ppo.py"


def found(folder: Path, *words: str, launch: Launch = _NO_LAUNCH) -> list[tuple[str, bool]]:
    (configuration,) = configured("++algorithm.adv_estimator=grpo", *words)
    answer = other_models.collect(replace(configuration, program=PPO), Machine(cwd=folder), launch)
    assert isinstance(answer, OtherModels)
    return [(model.key, model.exists) for model in answer.models]


@pytest.mark.parametrize("name", ["tokenizer_path", "hf_config_path", "lora_adapter_path"])
def test_a_folder_that_a_model_names_must_exist(name: str, tmp_path: Path) -> None:
    key = f"{MODEL}.{name}"
    assert found(tmp_path, f"++{key}={tmp_path}/gone") == [(key, False)]
    assert found(tmp_path, f"++{key}=./gone") == [(key, False)]
    (tmp_path / "gone").mkdir()
    assert found(tmp_path, f"++{key}=./gone") == [(key, True)]


def test_a_name_on_the_hub_is_not_judged(tmp_path: Path) -> None:
    assert found(tmp_path, f"++{MODEL}.tokenizer_path=Qwen/Qwen3-8B") == []


def test_a_folder_that_the_script_may_make_is_not_missing(tmp_path: Path) -> None:
    command = Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(tmp_path))
    made = Launch((), command=command, made=(str(tmp_path / "out"),))
    assert found(tmp_path, f"++{MODEL}.tokenizer_path=./out/tok", launch=made) == [
        (f"{MODEL}.tokenizer_path", True)
    ]
    far = Launch((), command=command, in_container=True)
    assert found(tmp_path, f"++{MODEL}.tokenizer_path=/image/tok", launch=far) == [
        (f"{MODEL}.tokenizer_path", True)
    ]
