"""Models of the hub that a job may not fetch."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.model.hub_models import HubModels, hub_models
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

_NO_LAUNCH = Unknown("no launch script")
KEY, NAME = "actor_rollout_ref.model.path", "Qwen/Qwen2.5-0.5B"


def seen(
    folder: Path, *words: str, launch: Launch | Unknown = _NO_LAUNCH, **variables: str
) -> HubModels | Unknown:
    (configuration,) = configured(f"{KEY}={NAME}", *words)
    machine = Machine(environ={"HOME": str(folder)}, cwd=folder)
    return hub_models.collect(configuration, JobVariables(variables), machine, launch)


def cached(folder: Path, *words: str, **variables: str) -> dict[str, bool]:
    found = seen(folder, *words, **variables)
    assert isinstance(found, HubModels), found
    return {model.name: model.cached for model in found.models}


def fetched(cache: Path, name: str = NAME) -> None:
    (cache / f"models--{name.replace('/', '--')}" / "snapshots" / "0123").mkdir(parents=True)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_uncached_model_is_unavailable_offline(tmp_path: Path, variable: str) -> None:
    assert cached(tmp_path, **{variable: "1"}) == {NAME: False}
    fetched(tmp_path / ".cache/huggingface/hub")
    assert cached(tmp_path, **{variable: "True"}) == {NAME: True}


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HF_HOME": "there"}, "there/hub"),
        ({"HF_HUB_CACHE": "there"}, "there"),
        ({"XDG_CACHE_HOME": "there"}, "there/huggingface/hub"),
    ],
)
def test_variables_of_the_job_locate_the_cache(
    tmp_path: Path, variables: dict[str, str], folder: str
) -> None:
    fetched(tmp_path / folder)
    given = {name: str(tmp_path / value) for name, value in variables.items()}
    assert cached(tmp_path, HF_HUB_OFFLINE="1", **given) == {NAME: True}


def test_local_folder_of_that_name_is_not_a_hub_model(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    assert cached(tmp_path, HF_HUB_OFFLINE="1") == {}


@pytest.mark.parametrize("variables", [{}, {"HF_HUB_OFFLINE": "0"}, {"HF_HUB_OFFLINE": "1", "VERL_USE_MODELSCOPE": "1"}])  # fmt: skip
def test_job_with_access_to_a_hub_is_not_judged(tmp_path: Path, variables: dict[str, str]) -> None:
    assert isinstance(seen(tmp_path, **variables), Absent)


def test_a_name_without_an_owner_is_a_hub_model_where_the_job_has_no_such_folder(tmp_path: Path) -> None:
    word = f"{KEY}=gpt2"
    assert cached(tmp_path, word, HF_HUB_OFFLINE="1") == {"gpt2": False}
    fetched(tmp_path / ".cache/huggingface/hub", "gpt2")
    assert cached(tmp_path, word, HF_HUB_OFFLINE="1") == {"gpt2": True}
    (tmp_path / "gpt2").mkdir()
    assert cached(tmp_path, word, HF_HUB_OFFLINE="1") == {}


def test_a_name_without_an_owner_may_be_a_folder_where_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    word = f"{KEY}=mine"
    there = Launch(
        (), command=Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(tmp_path / "models"))
    )
    found = seen(tmp_path, word, launch=there, HF_HUB_OFFLINE="1")
    assert isinstance(found, HubModels)
    assert found.models == ()
    (tmp_path / "run.sh").write_text("cd $SOMEWHERE\n")
    elsewhere = Launch(((str(tmp_path / "run.sh"), "shell script"),))
    found = seen(tmp_path, word, launch=elsewhere, HF_HUB_OFFLINE="1")
    assert isinstance(found, HubModels)
    assert found.models == ()
