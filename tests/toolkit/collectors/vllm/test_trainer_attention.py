"""The attention implementation requested by the trainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter, site_packages
from support.miniatures.source_trees import write

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.collectors.vllm.trainer_attention import TrainerAttention, trainer_attention
from verl_doctor.toolkit.facts import Absent, Unknown

UNKNOWN = Unknown("not composed")
CUDA = VllmPlatform("cuda", "torch 2.9.0")
LOADS = """
def load(override):
    return override.get("attn_implementation", "flash_attention_2")
"""

VALUE_MODEL = """
def load_valuehead_model(local_path, model_config):
    from transformers import AutoModelForTokenClassification
    return AutoModelForTokenClassification.from_pretrained(local_path, config=model_config, attn_implementation="flash_attention_2")
"""


def attention_of(
    tmp_path: Path,
    *words: str | None,
    packages: tuple[str, ...] = (),
    platform: VllmPlatform = CUDA,
    configuration: Configuration | Unknown = UNKNOWN,
) -> TrainerAttention | Unknown:
    site = site_packages(tmp_path)
    for name in packages:
        write(site / name, {"version.py": ""})
    tree = Tree(str(write(tmp_path / "verl", {"workers/config/model.py": LOADS})), "verl", "0.9.1", "--verl")
    read = tuple(
        Word(text, "run.sh", 4, "actor_rollout_ref.model.override_config.attn_implementation=$X")
        for text in words
    )
    launch = Launch((), command=Command("verl.trainer.main_ppo", read, "run.sh", 3))
    found = trainer_attention.collect(
        launch, configuration, VerlTrees(tree, "named"), interpreter(site), platform
    )
    assert isinstance(found, (TrainerAttention, Unknown))
    return found


def test_verl_default_is_used_and_its_package_looked_up(tmp_path: Path) -> None:
    found = attention_of(tmp_path)
    assert isinstance(found, TrainerAttention)
    assert (found.name, found.by_default, found.needs, found.installed, found.line) == (
        "flash_attention_2", True, "flash_attn", False, 3
    )  # fmt: skip
    there = attention_of(tmp_path, packages=("flash_attn",))
    assert isinstance(there, TrainerAttention)
    assert there.installed


def test_command_overrides_the_default(tmp_path: Path) -> None:
    found = attention_of(tmp_path, "+actor_rollout_ref.model.override_config.attn_implementation=sdpa")
    assert isinstance(found, TrainerAttention)
    assert (found.name, found.installed, found.by_default, found.path, found.line) == (
        "sdpa",
        True,
        False,
        "run.sh",
        4,
    )


def test_kernels_package_is_used_if_transformers_supports_it(tmp_path: Path) -> None:
    without = attention_of(tmp_path, packages=("kernels",))
    assert isinstance(without, TrainerAttention)
    assert not without.installed
    fallback = 'FALLBACK = {"flash_attention_2": "kernels-community/flash-attn2"}\n'
    write(site_packages(tmp_path) / "transformers", {"modeling_utils.py": fallback})
    found = attention_of(tmp_path)
    assert isinstance(found, TrainerAttention)
    assert found.installed


def test_unusual_names_are_looked_up_in_transformers(tmp_path: Path) -> None:
    table = 'class AttentionInterface:\n    _global_mapping = {"sdpa": a, "flex_attention": b}\n'
    write(site_packages(tmp_path) / "transformers", {"modeling_utils.py": table})
    key = "+actor_rollout_ref.model.override_config.attn_implementation"
    for name, known in (
        ("FLASH_ATTN", ("eager", "sdpa", "flex_attention")),
        ("sdpa", ()),
        ("hub/kernel", ()),
    ):
        found = attention_of(tmp_path, f"{key}={name}")
        assert isinstance(found, TrainerAttention)
        assert found.known == known


@pytest.mark.parametrize("word", ["actor_rollout_ref.actor.strategy=megatron", "model.strategy=megatron"])
def test_other_strategies_do_not_use_transformers(tmp_path: Path, word: str) -> None:
    assert isinstance(attention_of(tmp_path, word), Absent)


def test_undetermined_values_are_unknown(tmp_path: Path) -> None:
    found = attention_of(tmp_path, None)
    assert isinstance(found, Unknown)
    assert not isinstance(found, Absent)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "flash_attention_2"),
        ({"enable": False}, None),
        ({"enable": True}, "flash_attention_2"),
        ({"strategy": "megatron"}, None),
        ({"model": {}}, None),
    ],
)
def test_critic_has_a_separate_attention_setting(
    tmp_path: Path, changed: dict[str, object], name: str | None
) -> None:
    critic = {"enable": None, "strategy": "fsdp", "model": {"hf_config_path": None, "override_config": {}}}
    before = {"algorithm": {"adv_estimator": "gae"}, "critic": {**critic, **changed}}
    there = Configuration("main_ppo.py", "config", "ppo_trainer", before=before, after=before)
    key = "model.override_config.attn_implementation"
    found = attention_of(tmp_path, f"+actor_rollout_ref.{key}=sdpa", configuration=there)
    assert isinstance(found, TrainerAttention)
    assert (found.name, found.critic and found.critic.name) == ("sdpa", name)
    both = attention_of(
        tmp_path, f"+actor_rollout_ref.{key}=sdpa", f"+critic.{key}=eager", configuration=there
    )
    assert isinstance(both, TrainerAttention)
    assert (both.critic and both.critic.name) == (name and "eager")


def test_critic_with_an_attention_fixed_by_verl_ignores_the_setting(tmp_path: Path) -> None:
    critic = {"enable": True, "strategy": "fsdp2", "model": {"hf_config_path": None, "override_config": {}}}
    there = Configuration(
        "main_ppo.py", "config", "ppo_trainer", before={"critic": critic}, after={"critic": critic}
    )
    loader = write(tmp_path / "verl", {"utils/model.py": VALUE_MODEL}) / "utils/model.py"
    words = [
        f"+{part}.model.override_config.attn_implementation=sdpa" for part in ("actor_rollout_ref", "critic")
    ]
    found = attention_of(tmp_path, *words, configuration=there)
    assert isinstance(found, TrainerAttention)
    assert found.critic
    assert (found.critic.name, found.critic.fixed, found.critic.installed) == (
        "flash_attention_2",
        True,
        False,
    )
    assert (found.critic.path, found.critic.line) == (str(loader), 4)
    loader.write_text(VALUE_MODEL.replace('"flash_attention_2"', "model_config.attention"))
    read = attention_of(tmp_path, *words, configuration=there)
    assert isinstance(read, TrainerAttention)
    assert read.critic
    assert (read.critic.name, read.critic.fixed) == ("sdpa", False)


def test_package_is_needed_without_a_gpu_too(tmp_path: Path) -> None:
    found = attention_of(tmp_path, platform=replace(CUDA, name="cpu"))
    assert isinstance(found, TrainerAttention)
    assert not found.installed


def test_devices_with_built_in_attention_are_not_judged(tmp_path: Path) -> None:
    assert isinstance(attention_of(tmp_path, platform=replace(CUDA, name="xpu")), Absent)


def test_default_is_not_assumed_where_the_users_configuration_is_unknown(tmp_path: Path) -> None:
    found = attention_of(tmp_path, "--config-path=/not/here", "--config-name=mine")
    assert isinstance(found, Unknown)


def test_default_is_not_assumed_for_programs_that_may_load_another_model(tmp_path: Path) -> None:
    own = Configuration("/home/me/train.py", "/home/me", "mine", own_parts=True)
    assert isinstance(attention_of(tmp_path, configuration=own), Unknown)
    evaluates = Configuration("/env/verl/trainer/main_eval.py", "/env/verl/trainer/config", "evaluation")
    assert isinstance(attention_of(tmp_path, configuration=evaluates), Absent)
