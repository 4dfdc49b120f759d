"""Recipe of the FAST_LOAD variant: what helps for these packages and this storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.miniatures.variant_verl import composed

from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.vllm.loading import VllmLoading
from verl_doctor.toolkit.commands.script.fast_load import Surroundings, fast_load

ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
FORMAT, STRATEGY = f"{ROLLOUT}.load_format", f"{ROLLOUT}.engine_kwargs.vllm.safetensors_load_strategy"
GIB = 1 << 30
NFS = ModelStorage("/models/x", "nfs4", "/models", shared=True, bytes=16 * GIB, cached=0)
DISK = replace(NFS, kind="ext4", shared=False)
LOADING = VllmLoading("0.14.0", ("auto", "dummy", "safetensors"), ("eager", "lazy", "prefetch"))
LORA = (f"{MODEL}.lora_rank=32", f"{FORMAT}=safetensors")


def changed(*words: str, around: Surroundings | None = None) -> dict[str, Any]:
    return {change.key: change.value for change in fast_load(composed(*words), around).changes}


def kept(*words: str, around: Surroundings | None = None) -> str:
    return " ".join(fast_load(composed(*words), around).kept)


def test_graph_capture_is_disabled() -> None:
    assert changed() == {f"{ROLLOUT}.enforce_eager": True}
    assert changed(f"{ROLLOUT}.enforce_eager=True") == {}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ((f"{FORMAT}=safetensors",), "dummy"),
        ((f"{FORMAT}=auto",), "dummy"),
        ((), None),
        (LORA, None),
        ((f"{FORMAT}=auto", "actor_rollout_ref.hybrid_engine=False"), None),
    ],
)
def test_rollout_uses_dummy_weights_if_the_trainer_sends_them(
    words: tuple[str, ...], value: str | None
) -> None:
    assert changed(*words).get(FORMAT) == value


def test_rollout_with_separate_gpus_reads_the_weights() -> None:
    there = replace(
        composed(f"{FORMAT}=auto"), program="/env/verl/experimental/fully_async_policy/fully_async_main.py"
    )
    assert FORMAT not in {change.key for change in fast_load(there).changes}


@pytest.mark.parametrize(
    ("words", "storage", "loading", "helps"),
    [
        (LORA, NFS, LOADING, True),
        (LORA, DISK, LOADING, False),
        ((), NFS, LOADING, False),
        (LORA, NFS, replace(LOADING, strategies=("eager", "lazy")), False),
        (LORA, NFS, replace(LOADING, reads_ahead_on=("nfs4",)), False),
        ((*LORA, f"+{STRATEGY}=eager"), NFS, LOADING, False),
        ((*LORA, f"{FORMAT}=runai_streamer"), NFS, LOADING, False),
    ],
)
def test_prefetch_is_enabled_only_where_it_helps(
    words: tuple[str, ...], storage: ModelStorage, loading: VllmLoading, helps: bool
) -> None:
    found = fast_load(composed(*words), Surroundings(storage, loading)).changes
    assert [(change.sign, change.value) for change in found if change.key == STRATEGY] == [
        ("+", "prefetch")
    ] * helps


@pytest.mark.parametrize(
    ("storage", "room", "copies"),
    [
        (NFS, 32 * GIB, True),
        (NFS, 8 * GIB, False),
        (DISK, 32 * GIB, False),
        (replace(NFS, cached=16 * GIB), 32 * GIB, False),
        (replace(NFS, in_shared_memory=True), 32 * GIB, False),
    ],
)
def test_cold_weights_on_a_network_mount_are_copied_if_they_fit(
    storage: ModelStorage, room: float, copies: bool
) -> None:
    assert changed(around=Surroundings(storage, LOADING, room)).get(f"{MODEL}.use_shm", False) is copies


def test_simultaneous_copies_by_several_processes_are_avoided() -> None:
    around = Surroundings(NFS, LOADING, 32 * GIB)
    four = "trainer.nnodes=4"
    assert f"{MODEL}.use_shm" not in changed(four, around=around)
    assert "verl-doctor warmup" in kept(four, around=around)
    assert changed(four, around=replace(around, waits=True))[f"{MODEL}.use_shm"] is True


def test_warmup_is_suggested_for_cold_weights() -> None:
    assert "verl-doctor warmup" in kept(around=Surroundings(DISK, LOADING))
    assert "verl-doctor warmup" not in kept(around=Surroundings(replace(DISK, cached=DISK.bytes), LOADING))


def test_useless_remedies_are_named() -> None:
    assert "TOKENIZERS_PARALLELISM" in kept()
