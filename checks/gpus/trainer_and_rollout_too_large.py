"""CUDA157: the trainer and the rollout cannot be on one GPU with these settings."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from verl_doctor.checks.gpus._gpu_memory import (
    ACTOR,
    FSDP,
    OPTIMIZER,
    PARALLEL,
    PARAMETERS,
    ROLLOUT,
    Engine,
    Trainer,
    engine_of,
    gpus_of,
    trainer_of,
)
from verl_doctor.checks.shared.configuration import SHARE, configured, place
from verl_doctor.checks.shared.corrections import healed
from verl_doctor.checks.shared.gpu_room import MARGIN, OVERHEAD, STEP, Room
from verl_doctor.checks.shared.limits_examples import gpus
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.gpu_memory import GpuMemory
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.size import ModelSize
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_GIB = 1 << 30
_8B = ModelSize(folder="/models/8b", parameters=8_000_000_000)
_SHAPE = Model(
    folder="/models/8b", named_by="actor_rollout_ref.model.path", head_size=128, layers=32, kv_heads=8
)
_A100 = Resources(gpus=(Gpu(name="NVIDIA A100", memory=81920),), cpus=32, memory=250 << 30)
_ONE = ("trainer.n_gpus_per_node=1", f"{PARALLEL}=1")
_OFFLOAD = (f"{PARAMETERS}=True", f"{OPTIMIZER}=True")


def _example(
    *words: str, size: ModelSize = _8B, resources: Resources | None = None, gib: int = 1000
) -> tuple[object, ...]:
    memory = HostMemory(total=gib * _GIB, available=gib * _GIB)
    here = resources or gpus(8)
    (gpu, *_) = here.gpus or ()
    return configured(*words)[0], size, _SHAPE, here, memory, GpuMemory(each=gpu.memory << 20, by=gpu.name)


def _irrelevant(
    configuration: Configuration, resources: Resources | Unknown, gpu: GpuMemory | Unknown
) -> str | None:
    if isinstance(gpu, Unknown) and isinstance(resources, Resources) and not resources.gpus:
        return "no GPU is visible on this machine, so the job runs elsewhere"
    strategy, engine = configuration.get(f"{ACTOR}.strategy"), configuration.get(f"{ROLLOUT}.name")
    if strategy not in ("fsdp", "fsdp2"):
        return f"what the strategy {strategy} needs is not known"
    if engine != "vllm":
        return f"what the rollout {engine} needs is not known"
    if configuration.get("actor_rollout_ref.hybrid_engine") is False or configuration.number(
        f"{ROLLOUT}.nnodes"
    ):
        return "trainer and rollout have GPUs of their own"
    if configuration.number("actor_rollout_ref.model.lora_rank"):
        return "with LoRA the trainer needs less than can be computed"
    optimizer = configuration.get(f"{ACTOR}.optim.optimizer")
    if (isinstance(optimizer, str) and optimizer != "AdamW") or not configuration.complete:
        return "what the optimizer needs is not known"
    if configuration.get(f"{FSDP}.offload_policy") is True:
        return "FSDP2 keeps everything in the machine's memory (offload_policy)"
    return None


def _examples() -> list[Example]:
    return [
        Example("8 billion parameters on eight H200", _example()),
        Example(
            "half a billion on one GPU",
            _example(*_ONE, size=ModelSize(folder="/models/0.5b", parameters=500_000_000)),
        ),
        Example("offloaded", _example("trainer.n_gpus_per_node=4", f"{SHARE}=0.9", *_OFFLOAD)),
        Example(
            "8 billion parameters on one GPU",
            _example(*_ONE, resources=_A100),
            "training needs at least 119 GiB on each GPU, but each has 80.0 GiB",
        ),
        Example(
            "a large share next to the trainer",
            _example("trainer.n_gpus_per_node=2", f"{SHARE}=0.8"),
            "take 112 GiB, and the trainer keeps at least 44.7 GiB",
        ),
        Example(
            "a share that is too small for the weights",
            _example(*_ONE, f"{SHARE}=0.1", size=ModelSize(folder="/models/8b", parameters=7_900_000_000)),
            "vLLM needs at least",
        ),
    ]


@check(
    "CUDA157",
    severity="warning",
    phase="engine",
    requires=("CFG101", "CFG102", "CFG103"),
    applies=_irrelevant,
    examples=_examples,
)
def trainer_and_rollout_too_large(
    configuration: Configuration,
    size: ModelSize,
    model: Model,
    resources: Resources | Unknown,
    memory: HostMemory | Unknown,
    gpu: GpuMemory,
) -> Iterator[Finding]:
    """The trainer and the rollout cannot share a GPU with these settings.

    ## Why it matters

    They share each GPU in turn: vLLM takes `gpu_memory_utilization` of all its memory while what the trainer
    does not offload stays there. `CUDA out of memory` then comes with the second step, when the optimizer has
    its states, or vLLM refuses to start: `Free memory on device ... is less than desired`, `No available
    memory for the cache blocks`.

    ## How to fix

    Apply what the finding computes for this machine. Its numbers are lower bounds, of weights, gradients,
    optimizer and cache; activations come on top and depend on sequence lengths and micro batches.
    `--gpu-memory 80GiB` checks the job for GPUs on other machines.
    """
    whole = gpu.each
    trainer, engine = trainer_of(configuration, size, resources), engine_of(configuration, size, model)
    share = configuration.number(SHARE) or 0.0
    number = gpus_of(configuration, resources)
    taken = share * whole
    kept = max(trainer.at_start, trainer.resident)
    word = configuration.override_of(SHARE)
    read_from = f"{size.folder}, {configuration.name}, {gpu.by}"
    where = place(word) if word else None
    if trainer.training > whole:
        yield Finding(
            (
                f"training needs at least {in_bytes(trainer.training)} on each GPU, but each has "
                f"{in_bytes(whole)}"
            ),
            Evidence(
                found=f"{counted(number, 'GPU')} a node with {in_bytes(whole)} each",
                wanted=(
                    f"{size.parameters / 1e9:.1f} billion parameters: weights {in_bytes(trainer.weights)}, "
                    f"gradients {in_bytes(trainer.weights)}, optimizer {in_bytes(trainer.states)} on each; "
                    "offload does not help during a step"
                ),
                read_from=read_from,
            ),
            remedy=f"use {ceil(number * trainer.training / (whole - MARGIN))} or more such GPUs, or set"
            f" {ACTOR}.strategy=fsdp2 with {FSDP}.offload_policy=True, {FSDP}.model_dtype=bf16, or use LoRA",
            severity="error",
            phase="first update",
            subject=Subject("model", size.folder),
        )
    elif kept + taken > whole:
        room = _room(trainer, engine, whole, share, number, memory)
        yield Finding(
            (
                f"{SHARE.rpartition('.')[2]}={share:g} lets vLLM take {in_bytes(taken)}, and the trainer "
                f"keeps at least {in_bytes(kept)} of the {in_bytes(whole)}"
            ),
            Evidence(
                found=f"{in_bytes(kept + taken)} of {in_bytes(whole)}",
                wanted=(
                    f"weights {in_bytes(trainer.weights)}{'' if trainer.kept_weights else ' (offloaded)'}, "
                    f"optimizer {in_bytes(trainer.states)}{'' if trainer.kept_states else ' (offloaded)'}"
                ),
                read_from=read_from,
            ),
            location=where,
            remedy=", or ".join(map(room.shown, room.ways())) or "spread the trainer over more GPUs",
            severity="error",
            phase="engine" if trainer.at_start + OVERHEAD + taken > whole else "first update",
            subject=Subject("setting", SHARE),
            **healed("CUDA157", room.correction(configuration)),
        )
    elif 0 < taken < engine.least:
        enough = ceil((engine.least + MARGIN) / whole / STEP) * STEP
        yield Finding(
            (
                f"vLLM needs at least {in_bytes(engine.least)} on each GPU, and "
                f"{SHARE.rpartition('.')[2]}={share:g} gives it {in_bytes(taken)}"
            ),
            Evidence(
                found=f"{in_bytes(taken)} of {in_bytes(whole)}",
                wanted=(
                    f"weights {in_bytes(engine.weights)}, and {engine.longest} tokens of one sequence x "
                    f"{in_bytes(engine.token)}"
                ),
                read_from=read_from,
            ),
            location=where,
            remedy=f"set {SHARE}={enough:.2f}"
            if enough * whole + trainer.resident < whole
            else f"spread the weights over more GPUs: {PARALLEL}",
            subject=Subject("setting", SHARE),
        )


def _room(
    trainer: Trainer, engine: Engine, whole: int, share: float, number: int, memory: HostMemory | Unknown
) -> Room:
    free = None if isinstance(memory, Unknown) else memory.available
    return Room(
        whole,
        share,
        trainer.at_start,
        trainer.resident,
        engine.least,
        {PARAMETERS: trainer.weights * trainer.kept_weights},
        {OPTIMIZER: trainer.states * trainer.kept_states},
        None if free is None else free / max(number, 1),
    )
