"""The recipe of the DEBUG variant: computed from the script's own values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.miniatures.variant_verl import composed

from verl_doctor.checks.configuration.batch_sizes_do_not_fit import batch_sizes_do_not_fit
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.commands.script.debug import debug
from verl_doctor.toolkit.commands.script.value import as_written
from verl_doctor.toolkit.commands.script.variant import Recipe
from verl_doctor.toolkit.facts import Unknown

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
DEMANDS = Demands(
    dict.fromkeys(
        (
            "divisible by the GPUs",
            "at least a mini batch",
            "mini batch per GPU",
            "mini batch of micro batches",
        ),
        "x:1",
    )
)


def changed(*words: str, **options: Any) -> dict[str, Any]:
    return {change.key: change.value for change in debug(composed(*words), **options).changes}


def with_recipe(words: tuple[str, ...], recipe: Recipe) -> Configuration:
    new = [Word(f"{change.key}={as_written(change.value)}", "", 1) for change in recipe.changes]
    return with_overrides(composed(), [*(Word(text, "", 1) for text in words), *new])


def test_batch_size_divides_among_eight_gpus() -> None:
    found = changed(
        f"{ROLLOUT}.n=5",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=40",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=16",
    )
    assert {key: value for key, value in found.items() if "size" in key or key.endswith(".n")} == {
        "data.train_batch_size": 4,
        f"{ROLLOUT}.n": 2,
        f"{ACTOR}.ppo_mini_batch_size": 4,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 1,
    }


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["trainer.n_gpus_per_node=1"], "data.train_batch_size", 1),
        (["trainer.n_gpus_per_node=1"], f"{ROLLOUT}.agent.num_workers", 1),
        (["trainer.nnodes=4"], "data.train_batch_size", 32),
        ([f"{ACTOR}.ulysses_sequence_parallel_size=8"], "data.train_batch_size", 8),
        ([f"{ACTOR}.ppo_micro_batch_size=64"], f"{ACTOR}.ppo_micro_batch_size", 8),
        (["data.gen_batch_size=3072", f"{ROLLOUT}.n=16"], "data.gen_batch_size", 4),
        (["data.max_response_length=2048"], "data.max_response_length", 64),
        (
            [f"{ROLLOUT}.multi_turn.enable=True", "data.max_response_length=2048"],
            "data.max_response_length",
            512,
        ),
        (["trainer.save_freq=999"], "trainer.save_freq", -1),
        (["trainer.save_freq=20"], "trainer.save_freq", -1),
        (["trainer.rollout_data_dir=/x"], "trainer.rollout_data_dir", None),
        (["trainer.total_training_steps=500"], "trainer.total_training_steps", 2),
        (["algorithm.filter_groups.enable=True"], "algorithm.filter_groups.enable", False),
    ],
)
def test_reduced_values(words: list[str], key: str, value: object) -> None:
    found = changed(*words)
    assert (key in found, found.get(key)) == (True, value)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["data.train_batch_size=1", "trainer.n_gpus_per_node=1"], "data.train_batch_size"),
        (["data.max_response_length=16"], "data.max_response_length"),
        (["data.max_prompt_length=10240"], "data.max_prompt_length"),
        (["trainer.total_training_steps=1"], "trainer.total_training_steps"),
        (["trainer.logger=console"], "trainer.logger"),
        (["trainer.logger=[console]"], "trainer.logger"),
        (["trainer.save_freq=0"], "trainer.save_freq"),
        (["trainer.val_only=True"], "trainer.val_before_train"),
        (["trainer.nnodes=2"], "trainer.nnodes"),
        ([f"{ROLLOUT}.gpu_memory_utilization=0.9"], f"{ROLLOUT}.gpu_memory_utilization"),
        (
            [f"{ACTOR}.use_dynamic_bsz=True", f"{ACTOR}.ppo_micro_batch_size_per_gpu=40"],
            f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        ),
        ([f"{ROLLOUT}.mode=sync", "trainer.n_gpus_per_node=1"], f"{ROLLOUT}.agent.num_workers"),
        (["trainer.n_gpus_per_node=${oc.env:N}"], "data.train_batch_size"),
    ],
)
def test_unchanged_values(words: list[str], key: str) -> None:
    assert key not in changed(*words)


def test_reasons_count_a_single_sample_and_gpu() -> None:
    recipe = debug(composed("trainer.n_gpus_per_node=1", f"{ROLLOUT}.n=1"))
    reasons = [change.why for change in recipe.changes]
    assert "1 sample a step is the fewest that verl divides among 1 GPU" in reasons
    assert not [reason for reason in reasons if re.search(r"\b1 [a-zA-Z]+s\b", reason)]


def test_undetermined_sizes_are_mentioned() -> None:
    recipe = debug(composed("trainer.n_gpus_per_node=${oc.env:N}"))
    assert any("trainer.n_gpus_per_node" in sentence for sentence in recipe.kept)


def test_tiny_data_have_two_rows() -> None:
    found = changed(f"{ROLLOUT}.n=8", "data.max_prompt_length=10240", tiny=Path("/tiny"))
    assert found["data.train_files"] == "/tiny/train.parquet"
    assert found["data.max_prompt_length"] == 512
    assert (found["data.train_batch_size"], found[f"{ROLLOUT}.n"]) == (2, 4)


@pytest.mark.parametrize(
    ("longest", "length"), [(100, 512), (512, 512), (700, 768), (9000, 9088), (11000, None)]
)
def test_prompts_stay_long_enough_for_the_data(longest: int, length: int | None) -> None:
    assert changed("data.max_prompt_length=10240", prompt=longest).get("data.max_prompt_length") == length


def test_undetermined_values_are_named_with_their_remedy() -> None:
    nodes = debug(composed("trainer.nnodes=${oc.env:N}", "trainer.n_gpus_per_node=8"))
    (sentence_found,) = (sentence for sentence in nodes.kept if "batch sizes" in sentence)
    assert "trainer.nnodes is not known" in sentence_found
    assert "--one-node" in sentence_found
    assert "data.train_batch_size" in changed("trainer.n_gpus_per_node=${oc.env:N}", gpus=8)


def test_one_node_is_assumed_on_request() -> None:
    found = changed("trainer.nnodes=${oc.env:N}", "trainer.n_gpus_per_node=8", one_node=True)
    assert (found["trainer.nnodes"], found["data.train_batch_size"]) == (1, 8)


def test_one_node() -> None:
    found = changed("trainer.nnodes=4", one_node=True)
    assert (found["trainer.nnodes"], found["data.train_batch_size"]) == (1, 8)


@pytest.mark.slow
@settings(deadline=None)
@given(
    gpus=st.integers(1, 12),
    nodes=st.integers(1, 3),
    batch=st.integers(1, 300),
    samples=st.integers(1, 17),
    micro=st.integers(1, 40),
    sequence=st.sampled_from([1, 2, 4]),
    strategy=st.sampled_from(["fsdp", "megatron"]),
)
def test_values_are_never_raised_and_verl_accepts_them(
    gpus: int, nodes: int, batch: int, samples: int, micro: int, sequence: int, strategy: str
) -> None:
    words = (
        f"trainer.n_gpus_per_node={gpus}", f"trainer.nnodes={nodes}", f"data.train_batch_size={batch}", f"{ROLLOUT}.n={samples}",
        f"{ACTOR}.ppo_mini_batch_size={max(batch // 2, 1)}", f"{ACTOR}.ppo_micro_batch_size_per_gpu={micro}",
        f"{ACTOR}.ulysses_sequence_parallel_size={sequence}", f"{ACTOR}.strategy={strategy}", f"{ROLLOUT}.tensor_model_parallel_size=1",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=1", "critic.enable=False",
    )  # fmt: skip
    before = composed(*words)
    recipe = debug(before)
    for change in recipe.changes:
        was = before.get(change.key)
        if isinstance(was, int) and not isinstance(was, bool) and isinstance(change.value, int):
            assert change.value < was
    after = with_recipe(words, recipe)
    bad = list(batch_sizes_do_not_fit.judge(after, DEMANDS, Unknown("not read")))
    if not list(batch_sizes_do_not_fit.judge(before, DEMANDS, Unknown("not read"))):
        assert not bad


def test_fine_tuning_saves_after_its_last_step_in_a_separate_folder() -> None:
    tree = {
        "data": {"train_batch_size": 256},
        "trainer": {
            "default_local_dir": "/ckpt/sft",
            "total_training_steps": None,
            "save_freq": "after_each_epoch",
            "logger": ["console"],
        },
    }
    there = Configuration(
        "/env/verl/trainer/sft_trainer.py", "/env/verl/trainer/config", "sft", before=tree, after=tree
    )
    assert {change.key: change.value for change in debug(there).changes} == {
        "trainer.default_local_dir": "/ckpt/sft_debug",
        "trainer.total_training_steps": 2,
        "trainer.save_freq": -1,
    }
