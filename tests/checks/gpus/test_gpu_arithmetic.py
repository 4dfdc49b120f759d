"""Arithmetic of the rules about memory: the numbers that they recommend silence them."""

from __future__ import annotations

import re

import pytest

from verl_doctor.checks.gpus import trainer_and_rollout_too_large
from verl_doctor.checks.host import memory_too_small
from verl_doctor.checks.shared.configuration import SHARE, configured
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.toolkit.collectors.host.gpu_memory import GpuMemory
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.size import ModelSize
from verl_doctor.toolkit.rule import Finding

GIB = 1 << 30
A100 = Resources((Gpu("NVIDIA A100", 81920),) * 8, 32, 250 * GIB)
SHAPE = Model("/models/7b", "--model", head_size=128, layers=28, kv_heads=4)


def on_gpus(*words: str, billions: float = 7.6, number: int = 8, gib: int = 2000) -> list[Finding]:
    configuration = configured(f"trainer.n_gpus_per_node={number}", *words)[0]
    size = ModelSize("/models/7b", int(billions * 1e9))
    resources = Resources(A100.gpus[:number] if A100.gpus else (), 32, None)
    memory = HostMemory(gib * GIB, gib * GIB)
    rule = trainer_and_rollout_too_large.trainer_and_rollout_too_large
    each = GpuMemory(81920 << 20, "NVIDIA A100")
    return list(rule.judge(configuration, size, SHAPE, resources, memory, each))


def in_memory(*words: str, gib: int) -> list[Finding]:
    configuration = configured(*words)[0]
    facts = (ModelSize("/m", 500_000_000), HostMemory(gib * GIB, gib * GIB), an_h200_node(healthy()), gpus(8))
    return list(memory_too_small.memory_too_small.judge(configuration, *facts))


def recommended(found: list[Finding], key: str) -> str:
    (finding,) = found
    match = re.search(rf"[\w.]*{key}=([\w.]+)", finding.remedy)
    assert match, finding.remedy
    return match[0]


@pytest.mark.parametrize("share", ["0.75", "0.8", "0.9"])
@pytest.mark.parametrize("number", [2, 4])
def test_recommended_share_fits(share: str, number: int) -> None:
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    found = on_gpus(f"{key}={share}", number=number)
    if not found:
        assert number == 4
        return
    assert not on_gpus(recommended(found, "gpu_memory_utilization"), number=number)


def test_offload_is_recommended_if_host_memory_suffices() -> None:
    words = ("actor_rollout_ref.rollout.gpu_memory_utilization=0.9",)
    (roomy,), (short,) = on_gpus(*words, number=2), on_gpus(*words, number=2, gib=40)
    assert "which moves 42.5 GiB of each GPU into the host's memory" in roomy.remedy
    assert "offload" not in short.remedy
    keys = re.findall(r"[\w.]+offload=True", roomy.remedy)
    assert not on_gpus(*words, *keys, number=2)


@pytest.mark.parametrize("share", ["0.5", "0.6", "0.7", "0.8", "0.9"])
@pytest.mark.parametrize("kl_loss", [True, False])
@pytest.mark.parametrize("billions", [1.5, 3.0, 4.0])
def test_corrected_script_fits(share: str, kl_loss: bool, billions: float) -> None:
    script = {SHARE: share, "actor_rollout_ref.actor.use_kl_loss": kl_loss}
    found = on_gpus(*(f"{key}={value}" for key, value in script.items()), number=1, billions=billions)
    if not found:
        assert float(share) < 0.9
        return
    correction = found[0].correction
    assert correction is not None
    assert not correction.effect  # the same numbers are computed
    for rewrite in correction.rewrites:
        key, _, value = rewrite.new.partition("=")
        script[key] = value
    assert not on_gpus(*(f"{key}={value}" for key, value in script.items()), number=1, billions=billions)


def test_single_rank_keeps_the_reference_until_the_first_batch() -> None:
    """As on an H100: 15.1 GiB of the actor and 15.1 GiB of the reference beside an engine that needs 0.6 of it."""
    words = (f"{SHARE}=0.6", "actor_rollout_ref.actor.use_kl_loss=True")
    (found,) = on_gpus(*words, number=1, billions=4.06)
    assert found.phase == "engine"
    (sharded,) = on_gpus(*words, number=2, billions=8.12)
    assert sharded.phase == "first update"


def test_offload_is_not_suggested_for_a_step_that_does_not_fit() -> None:
    prefix = "actor_rollout_ref.actor.fsdp_config"
    (found,) = on_gpus(f"{prefix}.param_offload=True", f"{prefix}.optimizer_offload=True", number=1)
    assert found.message.startswith("training needs at least 113 GiB")
    assert not on_gpus(f"+{prefix}.model_dtype=bf16", f"{prefix}.optimizer_offload=True", number=1)


def test_one_sequence_must_fit_next_to_the_weights() -> None:
    words = ("data.max_prompt_length=700000", "actor_rollout_ref.rollout.gpu_memory_utilization=0.5")
    parallel = "actor_rollout_ref.rollout.tensor_model_parallel_size=1"
    (found,) = on_gpus(*words, parallel)
    # 28 layers x 4 heads x 128 x keys and values x 2 bytes
    assert "tokens of one sequence x 56.0 KiB" in found.evidence.wanted
    assert not on_gpus(recommended([found], "gpu_memory_utilization"), words[0], parallel)


def test_recommended_number_of_agent_workers_fits() -> None:
    key = "actor_rollout_ref.rollout.agent.num_workers"
    found = in_memory(f"{key}=40", gib=70)
    assert not in_memory(recommended(found, "num_workers"), gib=70)
    (hopeless,) = in_memory(f"{key}=2", gib=40)
    assert "fewer agent workers are not enough" in hopeless.remedy
