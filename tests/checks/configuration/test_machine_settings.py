"""Settings recommended for a smaller machine satisfy verl's demands."""

from __future__ import annotations

import pytest

from verl_doctor.checks.configuration._machine_settings import recommended, relief
from verl_doctor.checks.configuration.batch_sizes_do_not_fit import batch_sizes_do_not_fit
from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.toolkit.collectors.configuration.configuration import with_overrides
from verl_doctor.toolkit.collectors.configuration.demands import _PATTERNS, Demands
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.facts import Unknown

EVERY = Demands(dict.fromkeys(_PATTERNS, "/env/verl/utils/config.py:1"))


def test_single_gpu() -> None:
    (there,) = configured(
        "actor_rollout_ref.rollout.n=8", "actor_rollout_ref.rollout.gpu_memory_utilization=0.7"
    )
    found = recommended(there, Resources((Gpu("a", 24_000),), 6, None))
    assert found == [
        "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.actor.fsdp_config.param_offload=True",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
        "data.train_batch_size=128",
        "actor_rollout_ref.actor.ppo_mini_batch_size=32",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.max_num_seqs=512",
        "actor_rollout_ref.rollout.max_num_batched_tokens=4096",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.6",
        "actor_rollout_ref.rollout.agent.num_workers=3",
    ]


def test_relief_halves_the_values() -> None:
    (there,) = configured(
        "trainer.n_gpus_per_node=1", "data.train_batch_size=32", "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        "actor_rollout_ref.rollout.n=8", "actor_rollout_ref.rollout.max_num_seqs=256",
        "actor_rollout_ref.rollout.max_num_batched_tokens=8192", "actor_rollout_ref.rollout.gpu_memory_utilization=0.7",
    )  # fmt: skip
    assert relief(there) == [
        "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.max_num_seqs=128",
        "actor_rollout_ref.rollout.max_num_batched_tokens=4096",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.6",
    ]


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("batch", [7, 32, 1000, 1024])
@pytest.mark.parametrize("samples", [1, 5, 16])
def test_recommendation_satisfies_every_demand(gpus: int, batch: int, samples: int) -> None:
    words = (f"data.train_batch_size={batch}", f"actor_rollout_ref.rollout.n={samples}")
    (there,) = configured(*words)
    more = recommended(there, Resources((Gpu("a", 80_000),) * gpus, 8, None))
    lines = [Word(text, SCRIPT, 1) for text in (*words, *more)]
    assert list(batch_sizes_do_not_fit.judge(with_overrides(there, lines), EVERY, Unknown("not read"))) == []


def test_unknown_word_leaves_batch_sizes_unjudged_and_is_named() -> None:
    there = with_overrides(configured()[0], [Word(None, SCRIPT, 7, "$EXTRA")])
    assert batch_sizes_do_not_fit.applies is not None
    assert batch_sizes_do_not_fit.applies(there) == Unknown(
        f"$EXTRA in the command is unknown ({SCRIPT.rpartition('/')[2]}:7)"
    )


@pytest.mark.parametrize("gpus", ["1.5", "-2", "0", "1000000000000", "inf"])
def test_impossible_numbers_of_gpus_break_no_rule(gpus: str) -> None:
    (there,) = configured(
        f"trainer.n_gpus_per_node={gpus}", "actor_rollout_ref.rollout.tensor_model_parallel_size=3"
    )
    assert list(batch_sizes_do_not_fit.judge(there, EVERY, Unknown("not read"))) == []
