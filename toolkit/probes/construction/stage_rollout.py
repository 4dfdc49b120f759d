"""The rollout.

Its classes, the engine's configuration through verl's own server, and the extension of the engine's workers.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import os
import types
from contextlib import ExitStack
from typing import Any
from unittest import mock

from verl_doctor.toolkit.probes.construction.find import find, has, plain, taken
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, NotNeededError, stage

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_SERVERS = "verl.workers.rollout.vllm_rollout.vllm_async_server"


class ArgumentsRefusedError(Exception):
    """The engine's command line does not accept an argument."""


class _Reached(BaseException):
    """Raised as soon as the engine's configuration is complete, so nothing is started."""


@stage("rollout classes", "resolution", seconds=120, imports=True)
def rollout_classes(job: Job) -> None:
    """Find the classes that the job's rollout names."""
    if job.kind != "ppo":
        raise NotNeededError("the job has no rollout")
    name, mode = job.value(f"{_ROLLOUT}.name"), job.value(f"{_ROLLOUT}.mode", "sync")
    if name == "hf":
        raise NotNeededError("the rollout of transformers is a part of the trainer")
    if has("verl.workers.rollout.base:get_rollout_class"):
        find("verl.workers.rollout.base:get_rollout_class")(name, mode)
    elif name in ("vllm", "sglang"):
        importlib.import_module(f"verl.workers.rollout.{name}_rollout")
    if mode == "async" and has("verl.workers.rollout.replica:get_rollout_replica_class"):
        given = {
            "rollout": name,
            "disaggregation_enabled": bool(job.value(f"{_ROLLOUT}.disaggregation.enabled", default=False)),
        }
        get = find("verl.workers.rollout.replica:get_rollout_replica_class")
        get(**taken(get, given))


@stage("engine", "rollout classes", "model", "configuration classes", seconds=90)
def engine(job: Job) -> None:
    """Build the engine's configuration, with the code of verl's server and vLLM's own checks."""
    if job.value(f"{_ROLLOUT}.name") != "vllm":
        raise NotHereError(f"the engine {job.value(f'{_ROLLOUT}.name')} is not configured here")
    if has(f"{_SERVERS}:vLLMHttpServer"):
        _served(job)
        return
    raise NotHereError("the engine of this release is configured while it starts")


def _served(job: Job) -> None:
    import ray

    module = importlib.import_module(_SERVERS)
    cls = plain(module.vLLMHttpServer)
    gpus = int(job.value("trainer.n_gpus_per_node", 1))
    size = 1
    for key in ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size"):
        size *= int(job.value(f"{_ROLLOUT}.{key}", 1))
    local = min(size, gpus)
    nodes = max(1, size // local)
    if nodes > 1:
        raise NotJudgedError(
            f"one engine takes {size} GPUs on {nodes} nodes, and its nodes meet when they start"
        )
    mode = find("verl.workers.rollout.replica:RolloutMode")
    given = {
        "config": _as_given(job, _ROLLOUT),
        "model_config": _as_given(job, "actor_rollout_ref.model"),
        "rollout_mode": mode.HYBRID,
        "workers": [None] * local,
        "replica_rank": 0,
        "node_rank": 0,
        "gpus_per_node": gpus,
        "nnodes": 1,
        "cuda_visible_devices": ",".join(map(str, range(local))),
    }
    context = types.SimpleNamespace(get_job_id=lambda: "00", get_node_id=lambda: "0" * 56)
    environ = dict(os.environ)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(ray, "get_runtime_context", return_value=context))
        stack.enter_context(mock.patch.object(ray.util, "get_node_ip_address", return_value="127.0.0.1"))
        if hasattr(ray._private, "services"):
            stack.enter_context(
                mock.patch.object(ray._private.services, "get_node_ip_address", return_value="127.0.0.1")
            )
        stack.enter_context(mock.patch.object(argparse.ArgumentParser, "exit", _refused))
        stack.callback(_restore, environ)
        server = cls(**taken(cls.__init__, given))
        job.server = server
        try:
            asyncio.run(_launched(server))
        except _Reached as reached:
            job.notes["engine"] = reached.args[0]
        else:
            raise NotJudgedError("the server of this release makes its engine's configuration elsewhere")
    _extension(job)


def _refused(_parser: Any, _status: int = 0, message: str | None = None) -> None:
    raise ArgumentsRefusedError((message or "").strip())


def _as_given(job: Job, key: str) -> Any:
    from omegaconf import OmegaConf

    section = OmegaConf.select(job.config, key)
    return OmegaConf.create(OmegaConf.to_container(section, resolve=True))


def _restore(environ: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


async def _launched(server: Any) -> None:
    """Launch the server up to the engine's configuration."""
    if not hasattr(server, "run_server"):
        raise NotJudgedError("the server of this release starts its engine in one piece")

    async def run_server(args: Any) -> None:
        raise _Reached(_configured(args))

    server.run_server = run_server
    await server.launch_server()


def _configured(args: Any) -> Any:
    """Return the engine's configuration for these arguments.

    An engine for CPUs has none of what needs a GPU.
    """
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform

    _inspect_here()
    engine_args = AsyncEngineArgs.from_cli_args(args)
    if current_platform.is_unspecified():
        raise NotJudgedError("vLLM detects no platform here")
    if current_platform.is_cpu():
        _refuse_unknown_quantization(engine_args.quantization)
        engine_args.enable_sleep_mode = False
        engine_args.quantization = None
        engine_args.tensor_parallel_size = 1
        engine_args.kv_cache_dtype = "auto"
    known = inspect.signature(engine_args.create_engine_config).parameters
    more = {}
    if "usage_context" in known:
        from vllm.usage.usage_lib import UsageContext

        more["usage_context"] = UsageContext.OPENAI_API_SERVER
    return engine_args.create_engine_config(**more)


def _refuse_unknown_quantization(name: str | None) -> None:
    """Raise vLLM's error for a quantization that it does not have.

    Those that it has are not tried: most need a GPU.
    """
    if name and has("vllm.model_executor.layers.quantization:get_quantization_config"):
        methods: Any = importlib.import_module("vllm.model_executor.layers.quantization")
        if name not in methods.QUANTIZATION_METHODS:
            methods.get_quantization_config(name)


def _inspect_here() -> None:
    """Make vLLM inspect the model's class in this process.

    The process that it would start imports vLLM again, which takes ten seconds.
    """
    if has("vllm.model_executor.models.registry:_run_in_subprocess"):
        registry: Any = importlib.import_module("vllm.model_executor.models.registry")
        registry._run_in_subprocess = _here


def _here(function: Any) -> Any:
    return function()


def _extension(job: Job) -> None:
    """Find the class that verl, or the job, adds to the engine's workers."""
    chosen = getattr(getattr(job.notes["engine"], "parallel_config", None), "worker_extension_cls", "")
    if chosen:
        module, _, name = chosen.rpartition(".")
        getattr(importlib.import_module(module), name)


def give_adapter(job: Job) -> None:
    """Run the code with which the engine's workers receive an adapter from the trainer.

    The adapter has no tensors.
    """
    rank = job.value(f"{_MODEL}.lora.rank", 0) or job.value(f"{_MODEL}.lora_rank", 0)
    made: Any = job.notes["engine"]
    if not rank or not getattr(made, "lora_config", None) or job.value(f"{_MODEL}.lora.merge", default=False):
        raise NotNeededError("no adapter is sent to the engine")
    request = find("verl.utils.vllm.utils:TensorLoRARequest", "verl.utils.vllm_utils:TensorLoRARequest")
    find("verl.utils.vllm.utils:VLLMHijack", "verl.utils.vllm_utils:VLLMHijack").hijack()
    settings = {
        "peft_type": "LORA",
        "r": int(rank),
        "lora_alpha": int(job.value(f"{_MODEL}.lora_alpha", 16)),
        "target_modules": [],
    }
    sent = {"lora_name": "1", "lora_int_id": 1, "lora_path": "in memory"}
    job.notes["key"] = f"{_MODEL}.lora_rank"
    _adapters_worker(made)._load_adapter(request(**sent, peft_config=settings, lora_tensors={}))


def _adapters_worker(made: Any) -> Any:
    """Return the part of an engine's worker that handles adapters, without a device."""
    cls = find("vllm.lora.worker_manager:LRUCacheWorkerLoRAManager")
    worker = object.__new__(cls)
    worker.lora_config = made.lora_config
    worker.vocab_size = made.model_config.get_vocab_size()
    worker._adapter_manager = types.SimpleNamespace(
        model=_class_in_engine(made), supported_lora_modules=[], packed_modules_mapping={}
    )
    worker._lora_model_cls = find("vllm.lora.lora_model:LoRAModel", "vllm.lora.models:LoRAModel")
    if "embedding_padding_modules" in inspect.signature(cls.__init__).parameters:
        worker.embedding_modules, worker.embedding_padding_modules = {}, []
    return worker


def _class_in_engine(made: Any) -> Any:
    """Return the vLLM class that the engine builds from the model."""
    registry = find("vllm.model_executor.models:ModelRegistry")
    resolve = registry.resolve_model_cls
    given = {"architectures": made.model_config.architectures, "model_config": made.model_config}
    return resolve(**taken(resolve, given))[0]


class CannedEngine:
    """An engine that responds to each request immediately with the same tokens."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens

    async def list_loras(self) -> set[int]:
        """Return no adapters: none is loaded."""
        return set()

    async def generate(self, **request: Any) -> Any:
        """Yield one complete vLLM output."""
        self._demand(request.get("prompt"), request.get("sampling_params"))
        tokens = self._tokens[: getattr(request.get("sampling_params"), "max_tokens", None) or None]
        logprobs = [{token: types.SimpleNamespace(logprob=-1.0)} for token in tokens]
        output = mock.MagicMock(
            token_ids=tokens, logprobs=logprobs, finish_reason="stop", stop_reason=None, routed_experts=None
        )
        yield mock.MagicMock(outputs=[output], num_preempted=0, prompt_logprobs=None, metrics=None)

    def _demand(self, prompt: Any, _params: Any) -> None:
        json.dumps(list((prompt or {}).get("prompt_token_ids", ())))
