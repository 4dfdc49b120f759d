"""The world of the job: one rank of all its GPUs, with the bytes it keeps, and sizes that divide unevenly."""

from __future__ import annotations

import copy
import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from verl_doctor.toolkit.probes.construction.find import find, has, plain, taken
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.ranks import (
    Laid,
    Recorder,
    bytes_of,
    local,
    models_of_shapes,
    rank_of,
)
from verl_doctor.toolkit.probes.construction.stage_model import copied, critic_config
from verl_doctor.toolkit.probes.construction.stage_program import needs_critic, needs_reference
from verl_doctor.toolkit.probes.construction.stage_rollout import give_adapter
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, NotNeededError, stage

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_LAID = ("fsdp", "fsdp2")
_SIZES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}


@stage("world", "model", seconds=60)
def world(job: Job) -> None:
    """Build the meshes of the trainer and the rollout, and measure what a rank keeps of each model."""
    if job.kind != "ppo":
        raise NotNeededError("an SFT job has no rollout")
    job = _original(job)
    strategy = job.value(f"{_ACTOR}.strategy")
    if strategy not in _LAID:
        raise NotHereError(f"the strategy {strategy} is not distributed over a world here")
    recorder = Recorder()
    parts: list[dict[str, Any]] = []
    shapes: list[tuple[str, tuple[int, ...]]] = []
    build = _engines if _has_engines(job) else _workers
    with rank_of(job.world, job.gpus_of_node), ExitStack() as stack:
        try:
            how = build(job, recorder, stack, parts, shapes)
        except (
            NotHereError,
            NotJudgedError,
            AssertionError,
            ValueError,
        ):  # how verl and torch reject numbers
            raise
        except Exception as error:
            raise NotJudgedError(
                f"the workers need something that is missing here: {type(error).__name__}: {error}"
            ) from error
    job.notes["world"] = {
        "size": job.world,
        "nodes": int(job.value("trainer.nnodes", 1)),
        "how": how,
        "meshes": [{"name": name, "dimensions": dims} for name, dims in recorder.meshes.items()],
        "shares": parts,
        "engine": _rollout(job, shapes),
    }


@stage("engine's world", "engine")
def engines_world(job: Job) -> None:
    """Run the engine's own checks of its parallel sizes, which it skips on a machine without GPUs."""
    made: Any = job.notes.get("engine")
    if not hasattr(made, "model_config") or not hasattr(made.model_config, "verify_with_parallel_config"):
        raise NotHereError("the engine of this release checks its sizes while it starts")
    parallel = copy.copy(made.parallel_config)
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        key = f"{_ROLLOUT}.{name.replace('parallel', 'model_parallel')}"
        object.__setattr__(parallel, name, int(job.value(key, 1)))
    made.model_config.verify_with_parallel_config(parallel)


@stage("engine's adapter", "engine")
def engines_adapter(job: Job) -> None:
    """Give the engine the trainer's adapter, once both exist."""
    give_adapter(job)


def _original(job: Job) -> Job:
    """Return the job with its original composed configuration: earlier stages have removed keys from it."""
    anew = replace(job, config=job.composed())
    for section in (_MODEL, "critic.model"):
        anew.set(f"{section}.use_shm", value=False)
    return anew


def _has_engines(job: Job) -> bool:
    """Return whether the workers have engines. In a release with both kinds, the setting decides."""
    if not has("verl.workers.engine_workers:ActorRolloutRefWorker"):
        return False
    legacy = has("verl.workers.fsdp_workers:ActorRolloutRefWorker")
    return not legacy or job.value("trainer.use_legacy_worker_impl", "auto") == "disable"


def _engines(
    job: Job, recorder: Recorder, stack: ExitStack, parts: list[dict[str, Any]], shapes: list[Any]
) -> str:
    """Build the workers of releases with separate engine classes."""
    workers = find("verl.workers.engine_workers")
    training = plain(workers.TrainingWorker)
    implementation = find("verl.workers.engine.fsdp.transformer_impl")
    _without_gpu(stack, workers)
    recorder.stand_in(stack, implementation)
    built: list[Any] = []
    stack.enter_context(models_of_shapes(built))

    def reset(worker: Any) -> None:
        engine = worker.engine
        name = _name_of(worker)
        recorder.mesh(name, getattr(engine, "device_mesh", None))
        recorder.mesh(f"{name}, sequences", getattr(engine, "ulysses_device_mesh", None))
        module = engine._build_module()
        if not shapes:
            shapes.extend(_shapes(module))
        if getattr(engine, "_is_lora", False):
            module = engine._build_lora_module(module)
        module = engine._build_fsdp_module(module)
        optimizer = None if engine.engine_config.forward_only else engine._build_optimizer(module)
        away = (bool(engine._is_offload_param), bool(engine._is_offload_optimizer))
        parts.append(_part(name, module, optimizer, recorder.laid[-1], away))

    stack.enter_context(mock.patch.object(training, "reset", reset))
    if hasattr(workers, "get_rollout_class"):

        def rollout_class(*_: Any) -> Any:
            return lambda **given: recorder.mesh("rollout", given.get("device_mesh"))

        stack.enter_context(mock.patch.object(workers, "get_rollout_class", rollout_class))
    if hasattr(workers, "CheckpointEngineRegistry"):
        stack.enter_context(mock.patch.object(workers.CheckpointEngineRegistry, "new", mock.MagicMock()))
    cls = plain(workers.ActorRolloutRefWorker)
    given = {"config": copied(job, "actor_rollout_ref"), "role": _role(job)}
    if job.has("distillation"):
        given["distillation_config"] = copied(job, "distillation")
    worker = cls(**taken(cls.__init__, given))
    worker.init_model()
    if needs_critic(job):
        training(config=critic_config(job, workers)).reset()
    return "verl's workers and engines"


def _name_of(worker: Any) -> str:
    if worker.config.model_type == "value_model":
        return "critic"
    return "reference" if worker.engine_config.forward_only else "actor"


def _workers(
    job: Job, recorder: Recorder, stack: ExitStack, parts: list[dict[str, Any]], shapes: list[Any]
) -> str:
    """Build the workers of releases that wrap models themselves."""
    module = find("verl.workers.fsdp_workers")
    _without_gpu(stack, module)
    recorder.stand_in(stack, module)
    built: list[Any] = []
    stack.enter_context(models_of_shapes(built))
    for name in (
        "offload_fsdp_model_to_cpu",
        "offload_fsdp_optimizer",
        "FSDPCheckpointManager",
        "FlopsCounter",
    ):
        if hasattr(module, name):
            stack.enter_context(mock.patch.object(module, name))
    stack.enter_context(_attention_of_any_kind())
    cls = plain(module.ActorRolloutRefWorker)
    build = cls._build_model_optimizer

    def recorded(worker: Any, *more: Any, **given: Any) -> Any:
        answer = build(worker, *more, **given)
        name = "reference" if given.get("role") == "ref" else "actor"
        if not shapes:
            shapes.extend(_shapes(built[-1]))
        away = (bool(worker._is_offload_param), bool(worker._is_offload_optimizer))
        parts.append(_part(name, answer[0], answer[1], recorder.laid[-1], away))
        return answer

    stack.enter_context(mock.patch.object(cls, "_build_model_optimizer", recorded))
    stack.enter_context(mock.patch.object(cls, "_build_rollout", mock.MagicMock(return_value=(None, None))))
    given = {"config": copied(job, "actor_rollout_ref"), "role": _role(job)}
    worker = cls(**taken(cls.__init__, given))
    recorder.mesh("actor", worker.device_mesh)
    recorder.mesh("actor, sequences", getattr(worker, "ulysses_device_mesh", None))
    worker.init_model()
    recorder.mesh("rollout", _rollout_mesh(job))
    if needs_critic(job):
        critic = plain(module.CriticWorker)(config=copied(job, "critic"))
        found, optimizer, *_ = critic._build_critic_model_optimizer(critic.config)
        away = (bool(critic._is_offload_param), bool(critic._is_offload_optimizer))
        parts.append(_part("critic", found, optimizer, recorder.laid[-1], away))
    return "verl's workers, and the rollout's mesh by its sizes"


def _rollout_mesh(job: Job) -> Any:
    """Build the mesh of the engines, as the workers of these releases do.

    Raises ValueError if it cannot be built.
    """
    from torch.distributed.device_mesh import init_device_mesh

    width = int(job.value(f"{_ROLLOUT}.tensor_model_parallel_size", 1))
    if job.world % width:
        raise ValueError(
            f"the rollout's tensor_model_parallel_size={width} does not divide the {job.world} GPUs of "
            "the job"
        )
    name = find("verl.utils.device:get_device_name")()
    return init_device_mesh(name, (job.world // width, width), mesh_dim_names=("dp", "infer_tp"))


def _attention_of_any_kind() -> Any:
    """Allow a configuration to name an attention that is not installed: it changes no shape."""
    from transformers import AutoConfig

    load = AutoConfig.from_pretrained.__func__

    def loaded(cls: Any, *args: Any, **more: Any) -> Any:
        more.pop("attn_implementation", None)
        return load(cls, *args, **more)

    return mock.patch.object(AutoConfig, "from_pretrained", classmethod(loaded))


def _without_gpu(stack: ExitStack, workers: Any) -> None:
    """Replace what uses a GPU while workers are built."""
    import torch

    stack.enter_context(mock.patch.object(torch.cuda, "set_device"))
    for name in ("set_numa_affinity", "aggressive_empty_cache", "log_gpu_memory_usage"):
        if hasattr(workers, name):
            stack.enter_context(mock.patch.object(workers, name))
    if not torch.cuda.is_available():
        base = find("verl.workers.engine.base") if has("verl.workers.engine.base:EngineRegistry") else None
        if hasattr(base, "get_device_name"):
            stack.enter_context(mock.patch.object(base, "get_device_name", return_value="cuda"))
        stack.enter_context(mock.patch.dict(os.environ, {"VERL_ENGINE_DEVICE": "cuda"}))


def _role(job: Job) -> str:
    rank = job.value(f"{_MODEL}.lora.rank", 0) or job.value(f"{_MODEL}.lora_rank", 0)
    adapted = rank > 0 or job.value(f"{_MODEL}.lora_adapter_path")
    return "actor_rollout_ref" if needs_reference(job) and not adapted else "actor_rollout"


def _shapes(module: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]


def _part(name: str, module: Any, optimizer: Any, laid: Laid, away: tuple[bool, bool]) -> dict[str, Any]:
    """Return what a rank keeps of a model, in bytes."""
    every = list(module.parameters())
    trained = [parameter for parameter in every if parameter.requires_grad] if optimizer is not None else []
    states, temporary = _states(optimizer) if optimizer is not None else (0, 0)
    return {
        "name": name,
        "strategy": laid.kind,
        "shards": laid.shards,
        "units": laid.units,
        "weights": bytes_of(every) + bytes_of(module.buffers()),
        "gradients": bytes_of(trained),
        "states": states,
        "temporary": temporary,
        "gathered": laid.gathered,
        "weights_away": "always" if laid.always_away else "between" if away[0] else "no",
        "states_away": "always" if laid.always_away else "between" if away[1] else "no",
    }


def _states(optimizer: Any) -> tuple[int | None, int]:
    """Return the bytes of the optimizer's states on this rank, and of its temporaries during a step.

    None if it cannot step here.

    The optimizer steps one parameter for each type and number of dimensions; its states grow with the
    elements.
    """
    import torch

    sampled: list[tuple[Any, int]] = []
    temporary = 0
    for group in optimizer.param_groups:
        kinds: dict[tuple[Any, int], list[Any]] = {}
        for parameter in group["params"]:
            if parameter.requires_grad:
                kinds.setdefault((parameter.dtype, parameter.dim()), []).append(local(parameter))
        group["params"] = [_sample(same) for same in kinds.values()]
        numbers = [sum(parameter.numel() for parameter in same) for same in kinds.values()]
        sampled += list(zip(group["params"], numbers, strict=True))
        # On GPUs the roots of all second moments are computed at once (`_multi_tensor_adamw` in torch/optim).
        if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and _is_at_once(group):
            temporary += sum(bytes_of(same) for same in kinds.values())
    try:
        optimizer.step()
    except Exception:  # noqa: BLE001 - whatever it needs that is not here
        return None, temporary
    return sum(round(number * _state_of(optimizer, sample)) for sample, number in sampled), temporary


def _sample(same: list[Any]) -> Any:
    import torch

    largest = max(same, key=lambda parameter: parameter.numel())
    sample = torch.nn.Parameter(torch.empty_like(largest, device="meta"))
    sample.grad = torch.empty_like(sample)
    return sample


def _is_at_once(group: dict[str, Any]) -> bool:
    return group.get("foreach") is not False and not group.get("fused")


def _state_of(optimizer: Any, sample: Any) -> float:
    """Return the bytes of states for one element."""
    states = [state for state in optimizer.state[sample].values() if getattr(state, "ndim", 0)]
    return float(bytes_of(states) / max(sample.numel(), 1))


def _rollout(job: Job, shapes: list[tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """Return what an engine keeps on each of its GPUs. Bytes are None if its types are not known here."""
    tensor = int(job.value(f"{_ROLLOUT}.tensor_model_parallel_size", 1))
    pipeline = int(job.value(f"{_ROLLOUT}.pipeline_model_parallel_size", 1))
    made = getattr(job.notes.get("engine"), "model_config", None)
    dtype = str(job.value(f"{_ROLLOUT}.dtype", "bfloat16")).removeprefix("torch.")
    width = None if job.value(f"{_ROLLOUT}.quantization") else _SIZES.get(dtype)
    text = job.hf_config.get_text_config() if hasattr(job.hf_config, "get_text_config") else job.hf_config
    heads = getattr(text, "num_key_value_heads", 0) or getattr(text, "num_attention_heads", 0) or 1
    elements = sum(_elements(name, shape, tensor, heads) for name, shape in shapes)
    longest = getattr(made, "max_model_len", None) or job.value(f"{_ROLLOUT}.max_model_len") or 0
    return {
        "name": str(job.value(f"{_ROLLOUT}.name", "")),
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "weights": None if width is None or not shapes else width * elements // pipeline,
        "token": None if width is None else _token(text, made, tensor, pipeline, heads, width),
        "longest": int(longest),
        "share": float(job.value(f"{_ROLLOUT}.gpu_memory_utilization", 0.0)),
        "apart": job.value("actor_rollout_ref.hybrid_engine") is False
        or bool(job.value(f"{_ROLLOUT}.nnodes", 0)),
        "sleeps": job.value(f"{_ROLLOUT}.free_cache_engine", default=True) is not False,
    }


def _elements(name: str, shape: tuple[int, ...], tensor: int, heads: int) -> int:
    """Return how many elements of a parameter one engine rank has, at minimum for its way of dividing."""
    number = 1
    for size in shape:
        number *= size
    if len(shape) < 2:  # norms are whole on each rank; the rest is small
        return number
    if ".k_proj." in name or ".v_proj." in name:
        return number // min(tensor, heads)
    return number // tensor


def _token(text: Any, made: Any, tensor: int, pipeline: int, heads: int, width: int) -> int | None:
    """Return the bytes of a token's keys and values on a rank; None for models with another kind of cache."""
    if made is None or getattr(made, "use_mla", True) or getattr(made, "is_hybrid", False):
        return None
    layers, all_heads = getattr(text, "num_hidden_layers", 0), getattr(text, "num_attention_heads", 0)
    windows = getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
    size = getattr(text, "head_dim", None) or (text.hidden_size // all_heads if all_heads else 0)
    if windows or not layers or not size or len(set(getattr(text, "layer_types", None) or ["one"])) > 1:
        return None
    return 2 * width * (layers // pipeline) * max(heads // tensor, 1) * size
