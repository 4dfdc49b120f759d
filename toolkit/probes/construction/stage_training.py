"""The trainer's workers and engine on `meta` tensors, in a process group whose other members are missing.

The group has the job's size.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from verl_doctor.toolkit.probes.construction.find import find, has, plain, taken
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.ranks import rank_of
from verl_doctor.toolkit.probes.construction.stage_model import critic_config
from verl_doctor.toolkit.probes.construction.stage_program import needs_critic, needs_reference
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, stage

_ACTOR = "actor_rollout_ref.actor"
_GROUP = "RayWorkerGroup"
_MODEL = "actor_rollout_ref.model"
_LONGEST_HEADER = 100_000_000  # bytes, the limit of safetensors


class MismatchError(RuntimeError):
    """The weights' shapes differ from the model's."""


@stage("weights", "model", seconds=60)
def weights(job: Job) -> None:
    """Build the model on `meta` and compare its shapes with the headers of the weights."""
    config = job.hf_config
    if config is None:
        raise NotJudgedError("the model's configuration is not known")
    has_shapes = _shapes(job.local_path)
    if not has_shapes:
        raise NotJudgedError("the model has no weights in safetensors")
    with mock.patch.dict(os.environ):
        module = _on_meta(job)
    if getattr(config, "quantization_config", None):
        return
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    bad = [name for name, shape in has_shapes.items() if name in wanted and wanted[name] != shape]
    if bad:
        name = bad[0]
        raise MismatchError(
            (
                f"{name} has the shape {has_shapes[name]} in {job.local_path} and {wanted[name]} by its "
                "config.json"
            )
            + (f"; so do {len(bad) - 1} more" if len(bad) > 1 else "")
        )


@stage("training engine", "weights", "configuration classes", seconds=60)
def training_engine(job: Job) -> None:
    """Build the workers that the trainer starts, without a weight or a GPU.

    This covers device meshes, adapters, optimizer and learning rate.
    """
    if job.kind != "ppo":
        _tuning_engine(job)
        return
    cls = plain(find("verl.workers.engine_workers:ActorRolloutRefWorker"))
    with rank_of(job.world, job.gpus_of_node), _meta_models(), ExitStack() as stack:
        _stand_ins(stack)
        role = "actor_rollout_ref" if needs_reference(job) and not _adapted(job) else "actor_rollout"
        given = {"config": job.config.actor_rollout_ref, "role": role}
        if job.has("distillation"):
            given["distillation_config"] = job.config.distillation
        worker = cls(**taken(cls.__init__, given))
        worker.init_model()
        if needs_critic(job):
            workers = find("verl.workers.engine_workers")
            job.notes["key"] = "critic"
            plain(workers.TrainingWorker)(config=critic_config(job, workers)).reset()


def _tuning_engine(job: Job) -> None:
    """Build the engine of an SFT job, with its trainer's own code."""
    cls = plain(find(f"{job.module}:SFTTrainer", "verl.trainer.sft_trainer:SFTTrainer"))
    if not hasattr(cls, "_build_engine") or not hasattr(cls, "_build_config"):
        raise NotHereError("the SFT trainer of this release builds its engine in one piece")
    with rank_of(job.world, job.gpus_of_node), _meta_models(), ExitStack() as stack:
        _stand_ins(stack)
        trainer = object.__new__(cls)
        trainer.config, trainer.rank = job.config, 0
        trainer._build_config()
        if _GROUP in cls._build_engine.__code__.co_names:  # its loader comes before its group of workers
            groups = find("verl.single_controller.ray")
            stack.enter_context(mock.patch.object(groups, _GROUP, _worker_here))
            _shared_loader(job, trainer)
            trainer._build_engine()
            return
        trainer._build_engine()
        _shared_loader(job, trainer)
        trainer.training_client.reset()


def _worker_here(*_: Any, ray_cls_with_init: Any, **__: Any) -> Any:
    """Stand in for a group of workers: the one of this rank, without Ray."""
    worker = plain(find("verl.workers.engine_workers:TrainingWorker"))
    return worker(*ray_cls_with_init.args, **ray_cls_with_init.kwargs)


def _shared_loader(job: Job, trainer: Any) -> None:
    """Build the loader of one rank, which takes its part of a batch."""
    rows = getattr(job.trainer, "train_dataset", None)
    if rows is None or not hasattr(trainer, "_build_dataloader"):
        return
    trainer.train_dataset, trainer.val_dataset = rows, None
    taken_out = job.value("data.train_batch_size")
    job.set("data.train_batch_size", job.notes.get("data.train_batch_size", taken_out))
    try:
        trainer._build_dataloader()
    finally:
        job.set("data.train_batch_size", taken_out)


def _adapted(job: Job) -> bool:
    rank = job.value(f"{_MODEL}.lora.rank", 0) or job.value(f"{_MODEL}.lora_rank", 0)
    return bool(rank > 0 or job.value(f"{_MODEL}.lora_adapter_path"))


def _stand_ins(stack: ExitStack) -> None:
    """Replace what would use a GPU or Ray; of an engine only what is built before FSDP remains."""
    import torch

    stack.enter_context(mock.patch.object(torch.cuda, "set_device"))
    workers = find("verl.workers.engine_workers")
    for name in ("set_numa_affinity", "aggressive_empty_cache", "log_gpu_memory_usage"):
        if hasattr(workers, name):
            stack.enter_context(mock.patch.object(workers, name))
    stack.enter_context(mock.patch.object(plain(workers.TrainingWorker), "reset", _reset))
    get = workers.get_rollout_class
    stack.enter_context(
        mock.patch.object(workers, "get_rollout_class", lambda *a: (get(*a), mock.MagicMock())[1])
    )
    if hasattr(workers, "CheckpointEngineRegistry"):
        stack.enter_context(mock.patch.object(workers.CheckpointEngineRegistry, "new", mock.MagicMock()))
    base = find("verl.workers.engine.base")
    if hasattr(base, "get_device_name") and base.get_device_name() == "cpu":  # engines are for devices
        stack.enter_context(mock.patch.object(base, "get_device_name", return_value="cuda"))


def _reset(worker: Any) -> None:
    """Do what `initialize` of an engine does before it shards the module."""
    engine = worker.engine
    if not hasattr(engine, "_build_module"):
        return
    module = engine._build_module()
    if getattr(engine, "_is_lora", False):
        module = engine._build_lora_module(module)
    if hasattr(engine, "_build_fsdp_module"):
        _wrapped(engine, module)
    if getattr(engine.engine_config, "forward_only", False):
        return
    if hasattr(engine, "_build_optimizer"):
        optimizer = engine._build_optimizer(module)
        if hasattr(engine, "_build_lr_scheduler"):
            engine._build_lr_scheduler(optimizer)


def _wrapped(engine: Any, module: Any) -> None:
    """Compute FSDP's arguments for the module: the layers that it wraps, and the types of its numbers."""
    config = engine.engine_config
    policy = find("verl.utils.fsdp_utils:get_fsdp_wrap_policy")
    given = {"module": module, "config": config.wrap_policy, "is_lora": getattr(engine, "_is_lora", False)}
    policy(**taken(policy, given))
    types = find("verl.utils.torch_dtypes:PrecisionType")
    for value in dict(getattr(config, "mixed_precision", None) or {}).values():
        types.to_dtype(value)


@contextlib.contextmanager
def _meta_models() -> Iterator[None]:
    """Allow models without weights: `from_pretrained` builds them from their configuration."""
    from transformers import PreTrainedModel

    def empty(cls: Any, /, _path: Any = None, *_: Any, config: Any = None, **more: Any) -> Any:
        return _built(
            cls, config, more.get("torch_dtype", more.get("dtype")), more.get("attn_implementation")
        )

    with mock.patch.object(PreTrainedModel, "from_pretrained", classmethod(empty)):
        yield


def _built(cls: Any, config: Any, dtype: Any, attention: Any) -> Any:
    import torch

    _without_gpu(config)
    more = {"attn_implementation": attention} if attention else {}
    with torch.device("meta"):
        return cls._from_config(config, **({"torch_dtype": dtype} if dtype is not None else {}), **more)


def _on_meta(job: Job) -> Any:
    import torch

    config = job.hf_config
    _without_gpu(config)
    auto = _auto_class(config)
    with torch.device("meta"):
        return auto.from_config(
            config, trust_remote_code=bool(job.value(f"{_MODEL}.trust_remote_code", default=False))
        )


def _auto_class(config: Any) -> Any:
    if has("verl.utils.model:get_hf_auto_model_class"):
        return find("verl.utils.model:get_hf_auto_model_class")(hf_config=config)
    import transformers

    seeing = getattr(transformers, "AutoModelForVision2Seq", None)
    if seeing is not None and type(config) in seeing._model_mapping:
        return seeing
    return transformers.AutoModelForCausalLM


def _without_gpu(config: Any) -> None:
    """Replace flash attention, which requires a GPU where it is installed.

    Its shapes equal those of another attention.
    """
    import torch

    if torch.cuda.is_available() or not importlib.util.find_spec("flash_attn"):
        return
    if str(getattr(config, "_attn_implementation", "")).startswith("flash_attention"):
        config._attn_implementation = "sdpa"


def _shapes(folder: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes in the headers of the model's safetensors, floating point only.

    Raises MismatchError for an invalid file.
    """
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(Path(folder).glob("*.safetensors")) if os.path.isdir(folder) else ():
        with path.open("rb") as file:
            start = file.read(8)
            size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 0 < size < _LONGEST_HEADER:
                raise MismatchError(f"{path} is not a safetensors file")
            header = json.loads(file.read(size))
        for name, tensor in header.items():
            if name != "__metadata__" and tensor["dtype"] in ("BF16", "F16", "F32", "F64"):
                found[name] = tuple(tensor["shape"])
    return found
