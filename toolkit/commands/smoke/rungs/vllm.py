"""Rung 4: vLLM loads a model and generates; on GPUs its engine sleeps, releases the memory, and wakes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import LaunchValues, launch_values
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.vllm.rollout_logprobs import rollout_logprobs
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.commands.smoke.child import Ran, script
from verl_doctor.toolkit.commands.smoke.device import lacks_cpu_vllm, uncompiled
from verl_doctor.toolkit.commands.smoke.engine_share import engine_share
from verl_doctor.toolkit.commands.smoke.failure import failed, left_out, steps_of
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.probes import smoke_engine
from verl_doctor.toolkit.text import in_bytes

_LIMIT = 900.0  # seconds; kernels compiled at the first start take minutes
_CODES = {
    "import vllm": "SMOKE101",
    "load": "SMOKE108",
    "generate again": "SMOKE110",
    "generate": "SMOKE109",
    "sleep": "SMOKE110",
    "wake": "SMOKE110",
    "": "SMOKE108",
}
_LENGTH = 256  # tokens of a prompt with its response
_SMALL, _USUAL = (
    0.1,
    0.5,
)  # shares of a GPU with unknown memory, for a tiny model and for one of the user's own
_AT_ONCE = 4  # prompts: vLLM tries its largest batch, which takes memory too
_LONG = 10.0  # seconds of compilation worth reporting
_GIVEN_BACK = 0.5  # of the engine's memory; its own CUDA context stays
_CPU_CACHE = "1"  # GiB


def climb(stage: Stage) -> Outcome:
    """Load the model with vLLM."""
    if refusal := _refusal(stage):
        return Outcome("not applicable", refusal)
    if stage.model is None:
        return Outcome("failed", "there is no model to load", "name one with --model", "SMOKE112")
    argv = script(stage.python, smoke_engine, str(stage.model), stage.device, json.dumps(_arguments(stage)))
    variables: dict[str, str | None] = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if stage.device == "cpu":
        # Without the second variable vLLM uses half of the machine's memory for its cache.
        variables |= {"CUDA_VISIBLE_DEVICES": "", "VLLM_CPU_KVCACHE_SPACE": _CPU_CACHE}
        variables |= uncompiled(stage.environ)
    ran = stage.run(argv, limit=_LIMIT, variables=variables, name="vllm")
    if ran.code != 0:
        return failed(ran, _CODES)
    outcome = Outcome("passed", steps=steps_of(ran), notes=(*left_out(ran), *_compiled(ran)), log=ran.log)
    return _memory(ran, outcome) if stage.device == "cuda" else outcome


def _refusal(stage: Stage) -> str:
    """Return why vLLM cannot be tried on this device, "" if it can."""
    lacking = lacks_cpu_vllm(stage.facts) if stage.device == "cpu" else ""
    return f"without a GPU {lacking}" if lacking else ""


def _arguments(stage: Stage) -> dict[str, Any]:
    """Return the engine's arguments: small, or with the user's own model those of the launch script."""
    common: dict[str, Any] = {"enforce_eager": True, "max_model_len": _LENGTH}
    if stage.device == "cpu":
        return common
    values = LaunchValues()
    if stage.target.files or stage.target.words:
        values = launch_values(stage.facts.get(Launch), stage.facts.get(Configuration))
    sizes = values if stage.own_model else LaunchValues()
    parallel = min(int(_number(sizes, "tensor_model_parallel_size") or 1), stage.gpus)
    share = (
        _number(sizes, "gpu_memory_utilization")
        or engine_share(stage.facts, _weights(stage), parallel)
        or (_USUAL if stage.own_model else _SMALL)
    )
    return {
        **common,
        **rollout_logprobs(stage.facts.get(VllmSampler), values),
        "max_num_seqs": _AT_ONCE,
        "tensor_parallel_size": parallel,
        "gpu_memory_utilization": share,
    }


def _weights(stage: Stage) -> int:
    """Return the bytes of the user's own model; a tiny model's do not count."""
    files = stage.facts.get(ModelFiles)
    return files.bytes if stage.own_model and not isinstance(files, Unknown) else 0


def _number(values: LaunchValues, key: str) -> float | None:
    given = values.get(f"actor_rollout_ref.rollout.{key}")
    value = given.value if given is not None and given.known else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _compiled(ran: Ran) -> tuple[str, ...]:
    """Return the compilation that also delays each start of the job without a cache."""
    if ran.builds is None or ran.builds.seconds < _LONG:
        return ()
    return (f"nvcc compiled {ran.builds.what} for {ran.builds.seconds:.0f} s: {ran.builds.remedy}",)


def _memory(ran: Ran, outcome: Outcome) -> Outcome:
    """Judge how much memory a sleeping engine released."""
    document = next((document for document in ran.documents if "took" in document), None)
    if document is None:
        return outcome
    took, back = int(document["took"]), int(document["given_back"])
    sentence = (
        f"the engine took {in_bytes(max(0, took))} of the GPUs' memory and gave back "
        f"{in_bytes(max(0, back))} asleep"
    )
    if took > 0 and back < took * _GIVEN_BACK:
        return replace(
            outcome,
            status="failed",
            cause=sentence,
            code="SMOKE110",
            remedy="see verl-doctor explain SMOKE110",
        )
    return replace(outcome, notes=(*outcome.notes, sentence))
