"""One rank of worlds of up to 1,024 GPUs, laid out by verl 0.9.1 on this machine, and indivisible sizes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest
from bench import bench_world
from support import rehearsal_environment
from support.built_together import built

from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.collectors.construction.world import Share, World
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.tiny.tiny import Tiny, make

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=120)]

ACTOR, MODEL, ROLLOUT = (f"actor_rollout_ref.{name}" for name in ("actor", "model", "rollout"))
FSDP = f"{ACTOR}.fsdp_config"
TWO, ONE = {f"{ACTOR}.strategy": "fsdp2"}, {f"{ACTOR}.strategy": "fsdp"}
SKIPPED = (
    "data sets", "first batch", "first validation batch", "agent loops", "agent loops in validation", "reward manager", "reward", "trackers",
    "resuming", "algorithm", "validation", "trainer", "roles", "micro batches",
)  # fmt: skip


def gpus(number: int, nodes: int = 1) -> dict[str, str]:
    return {"trainer.n_gpus_per_node": str(number), "trainer.nnodes": str(nodes)}


CASES: Mapping[str, Mapping[str, str]] = {
    "1": {**TWO, **gpus(1)},
    "8": {**TWO, **gpus(8)},
    "64": {**TWO, **gpus(8, 8)},
    "1024": {**TWO, **gpus(8, 128)},
    "8, FSDP1": {**ONE, **gpus(8)},
    "64 in groups of 8": {**TWO, **gpus(8, 8), f"{FSDP}.fsdp_size": "8"},
    "offload": {**TWO, **gpus(8), f"{FSDP}.param_offload": "True", f"{FSDP}.optimizer_offload": "True"},
    "offload by FSDP": {**TWO, **gpus(8), f"{FSDP}.offload_policy": "True"},
    "bf16": {**TWO, **gpus(8), f"{FSDP}.model_dtype": "bf16"},
    "SGD": {**TWO, **gpus(8), f"{ACTOR}.optim.optimizer": "SGD"},
    "adapter": {**TWO, **gpus(8), f"{MODEL}.lora_rank": "8", f"{MODEL}.lora_alpha": "16"},
    "critic": {**TWO, **gpus(8), "algorithm.adv_estimator": "gae", "critic.model.path": "{model}", "critic.model.tokenizer_path": "{model}", "critic.ppo_micro_batch_size_per_gpu": "1"},
    "tensors 2": {**TWO, **gpus(8), f"{ROLLOUT}.tensor_model_parallel_size": "2"},
    "tensors 16": {**TWO, **gpus(16), f"{ROLLOUT}.tensor_model_parallel_size": "16"},
    "tensors 3": {**TWO, **gpus(8), f"{ROLLOUT}.tensor_model_parallel_size": "3"},
    "sequences 2": {**TWO, **gpus(8), f"{ACTOR}.ulysses_sequence_parallel_size": "2", f"{MODEL}.use_remove_padding": "True"},
    "sequences 16": {**TWO, **gpus(16), f"{ACTOR}.ulysses_sequence_parallel_size": "16", f"{MODEL}.use_remove_padding": "True"},
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    real = interpreter.collect(Machine(), Target(rehearsal_environment.python(), "--python"))
    assert isinstance(real, Interpreter)
    made = make(Machine(), real, tmp_path_factory.mktemp("tiny"), shape="qwen2", kind="text")
    assert isinstance(made, Tiny), made
    return made


MEASURED = ("fsdp", "fsdp2", "fsdp2 in bf16")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model that is really loaded."""
    folder = tmp_path_factory.mktemp("small")
    bench_world.make_model(folder / "tiny", "tiny")
    return folder


@pytest.fixture(scope="module")
def measured(small: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """The bytes of rank 0 of verl's own engine, by ways and ranks."""
    cases = [["tiny", way] for way in MEASURED]
    return bench_world.measured_on_processors(rehearsal_environment.python(), small, {1: cases, 2: cases})


@pytest.fixture(scope="module")
def jobs(tiny: Tiny, small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Construction]:
    python = rehearsal_environment.python()
    top = tmp_path_factory.mktemp("worlds")
    site = next((python.parents[1] / "lib").glob("python*/site-packages"))
    usual = {
        "algorithm.adv_estimator": "grpo", "data.train_batch_size": "1024", "data.train_files": tiny.train, "data.val_files": tiny.validation,
        f"{MODEL}.path": tiny.model, f"{MODEL}.use_remove_padding": "False", f"+{MODEL}.override_config.attn_implementation": "sdpa",
        f"{ACTOR}.ppo_mini_batch_size": "1024", f"{ACTOR}.ppo_micro_batch_size_per_gpu": "1", f"{ACTOR}.use_kl_loss": "True",
        f"{ROLLOUT}.name": "vllm", f"{ROLLOUT}.gpu_memory_utilization": "0.2", f"{ROLLOUT}.enforce_eager": "True",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "1", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "1",
        f"{ROLLOUT}.tensor_model_parallel_size": "1", "trainer.logger": '["console"]',
    }  # fmt: skip
    overrides = {
        name: [f"{key}={str(value).format(model=tiny.model)}" for key, value in {**usual, **case}.items()]
        for name, case in CASES.items()
    }
    overrides |= {
        f"{way} on {ranks}": bench_world.words(small, "tiny", way, ranks)
        for way in MEASURED
        for ranks in (1, 2)
    }
    requests: dict[str, dict[str, Any]] = {
        name: {
            "folder": str(top),
            "tree": str(site),
            "module": "verl.trainer.main_ppo",
            "config_folder": str(site / "verl" / "trainer" / "config"),
            "config_name": "ppo_trainer",
            "overrides": words,
            "environ": {},
            "skip": SKIPPED,
        }
        for name, words in overrides.items()
    }
    return built(python, requests, top)


@pytest.fixture(scope="module")
def shapes(tiny: Tiny) -> list[list[int]]:
    """Of all weights, as the file has them."""
    with (tiny.model / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]


def world(jobs: dict[str, Construction], name: str) -> World:
    found = jobs[name].world
    assert found is not None, [stage for stage in jobs[name].stages if stage.ended not in ("ok", "skipped")]
    return found


def share(jobs: dict[str, Construction], case: str, name: str = "actor") -> Share:
    return next(share for share in world(jobs, case).shares if share.name == name)


def rows(shapes: list[list[int]], ranks: int) -> int:
    """The elements of rank 0 where each weight is divided by its rows: the first rank has no fewer than another."""
    return sum(ceil(shape[0] / ranks) * prod(shape[1:]) for shape in shapes)


@pytest.mark.parametrize("ranks", [1, 8, 64, 1024])
def test_fsdp2_rank_has_its_rows_of_each_weight(
    ranks: int, jobs: dict[str, Construction], shapes: list[list[int]]
) -> None:
    found = share(jobs, str(ranks))
    elements = rows(shapes, ranks)
    assert found.gradients == 4 * elements  # verl trains in 32 bits
    assert found.states == 8 * elements
    assert 0 <= found.weights - found.gradients < 4096  # what rotates positions is whole on each rank
    assert found.shards == world(jobs, str(ranks)).size == ranks


def test_fsdp1_rank_has_a_part_of_each_flat_parameter(
    jobs: dict[str, Construction], shapes: list[list[int]]
) -> None:
    found = share(jobs, "8, FSDP1")
    whole = 4 * sum(map(prod, shapes))
    assert found.units == 3  # two layers, and the rest
    assert whole / 8 <= found.gradients <= whole / 8 + 4 * found.units
    assert found.states == 2 * found.gradients


def test_groups_keep_as_much_as_a_world_of_their_size(jobs: dict[str, Construction]) -> None:
    found = share(jobs, "64 in groups of 8")
    assert (found.shards, found.gradients) == (8, share(jobs, "8").gradients)
    assert "actor ddp 8 x fsdp 8" in map(str, world(jobs, "64 in groups of 8").meshes)


def test_offloaded_tensors_are_in_host_memory(jobs: dict[str, Construction]) -> None:
    for case, away in (("8", "no"), ("offload", "between"), ("offload by FSDP", "always")):
        assert (share(jobs, case).weights_away, share(jobs, case).states_away) == (away, away)
        assert share(jobs, case, "reference").weights_away == "always"


def test_dtypes_and_optimizers_are_counted(jobs: dict[str, Construction]) -> None:
    assert share(jobs, "bf16").gradients * 2 == share(jobs, "8").gradients
    assert (share(jobs, "SGD").states, share(jobs, "SGD").temporary) == (0, 0)
    adapter = share(jobs, "adapter")
    assert 0 < adapter.gradients < adapter.weights / 2
    assert adapter.states == 2 * adapter.gradients
    assert [share.name for share in world(jobs, "adapter").shares] == ["actor"]  # which is its own reference


def test_critic_is_counted_as_a_separate_model(jobs: dict[str, Construction]) -> None:
    critic = share(jobs, "critic", "critic")
    assert (
        0 < critic.gradients < share(jobs, "critic").gradients
    )  # one number for a token in place of the vocabulary
    assert critic.states == 2 * critic.gradients


def test_engine_divides_its_weights(jobs: dict[str, Construction]) -> None:
    whole, half = world(jobs, "8").engine, world(jobs, "tensors 2").engine
    assert whole.weights is not None
    assert half.weights is not None
    assert half.token is not None
    assert whole.weights / 2 <= half.weights < whole.weights * 0.55
    assert half.token * 2 == whole.token
    assert "rollout dp 4 x infer_tp 2 x infer_pp 1" in map(str, world(jobs, "tensors 2").meshes)


@pytest.mark.parametrize(
    ("case", "stage", "text"),
    [
        (
            "tensors 16",
            "engine's world",
            "attention heads (8) must be divisible by tensor parallel size (16)",
        ),
        ("tensors 3", "training engine", "rollout world_size: 8 is not divisible by infer_world_size: 3"),
        ("sequences 16", "training engine", "ulysses_sp_size"),
    ],
)
def test_indivisible_sizes_raise_the_error_of_a_gpu(
    case: str, stage: str, text: str, jobs: dict[str, Construction]
) -> None:
    first = next(jobs[case].bad("training engine", "world", "engine's world"))
    assert first.stage == stage
    assert text in next(jobs[case].bad(stage)).text


def test_one_fault_is_reported_once(jobs: dict[str, Construction]) -> None:
    """The stage that lays out the job raises what the workers raised before."""
    assert [stage.stage for stage in jobs["tensors 3"].stages if stage.ended == "breaks"] == [
        "training engine",
        "world",
        "engine's world",
    ]
    assert list(jobs["tensors 3"].bad("world")) == []


def test_sequences_are_divided(jobs: dict[str, Construction]) -> None:
    assert "actor, sequences dp 4 x sp 2" in map(str, world(jobs, "sequences 2").meshes)


def test_computed_bytes_equal_those_of_the_real_engine(
    jobs: dict[str, Construction], measured: dict[tuple[str, ...], dict[str, Any]]
) -> None:
    """verl's engine loads a small model on processors and takes a step; each of its tensors counts."""
    assert measured.keys() == {("tiny", way, str(ranks)) for way in MEASURED for ranks in (1, 2)}
    for (_, way, ranks), bytes_seen in measured.items():
        computed = bench_world.at_moments(vars(share(jobs, f"{way} on {ranks}")))
        moments = {"loaded", "backward", "stepped", "left"}
        assert {moment: computed[moment] for moment in moments} == {
            moment: bytes_seen[moment] for moment in moments
        }, (way, ranks)
