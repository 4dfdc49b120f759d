"""CUDA137: engines that start together may damage the compile cache for each other."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import composed
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.compile_cache import SWITCHED_OFF_BY, CompileCache
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_ROLLOUT = "actor_rollout_ref.rollout"
_OLD = CompileCache("2.9.1")
_SOUND = CompileCache(torch="2.11.0", written_whole_by="torch 2.11.0")
_CUDA = VllmPlatform(name="cuda", evidence="torch 2.9.1+cu128")
_NOT_SET = EffectiveEnvironment()


def _job(gpus: int, tensor: int, *, eager: bool = False) -> Configuration:
    rollout = {"name": "vllm", "tensor_model_parallel_size": tensor, "enforce_eager": eager}
    tree = {"actor_rollout_ref": {"rollout": rollout}, "trainer": {"nnodes": 1, "n_gpus_per_node": gpus}}
    return composed(tree)


def _set_to(text: str) -> EffectiveEnvironment:
    values = (Value(text),)
    return EffectiveEnvironment(
        (
            Effective(
                name=SWITCHED_OFF_BY, driver=Value(), raylets=(Value(),), workers=values, decided_by="verl"
            ),
        )
    )


def _examples() -> list[Example]:
    return [
        Example("one engine on all GPUs", (_OLD, _CUDA, _job(8, 8), _NOT_SET)),
        Example("torch writes the cache safely", (_SOUND, _CUDA, _job(8, 2), _NOT_SET)),
        Example("verl turns the cache off", (_OLD, _CUDA, _job(8, 2), _set_to("1"))),
        Example("nothing is compiled", (_OLD, _CUDA, _job(8, 2, eager=True), _NOT_SET)),
        Example("several engines", (_OLD, _CUDA, _job(8, 2), _NOT_SET), "4 engines start together"),
        Example(
            "the cache was turned on", (_OLD, _CUDA, _job(8, 2), _set_to("0")), "4 engines start together"
        ),
    ]


@check("CUDA137", severity="warning", examples=_examples)
def compile_cache_raced(
    cache: CompileCache,
    platform: VllmPlatform,
    configuration: Configuration,
    environment: EffectiveEnvironment,
) -> Iterator[Finding]:
    """Engines that start together may damage each other's compile cache.

    ## Why it matters

    The engines of a job compile the same model at the same time and store it under the same name. Before
    torch 2.10 and vLLM 0.17, one could read an entry that another was still writing: `leading to a corrupted
    compilation artifact`, `UnpicklingError`, `failed to get the hash of the compiled graph`, and again at the
    next start.

    ## How to fix

    Set `VLLM_DISABLE_COMPILE_CACHE=1`, which costs about half a minute at each start of an engine, or upgrade
    vLLM or torch. Remove a cache that is already damaged: the folder `torch_compile_cache` in
    VLLM_CACHE_ROOT.
    """
    engines = _engines(configuration)
    switched = environment.worker(SWITCHED_OFF_BY)
    if platform.name != "cuda" or cache.written_whole_by or engines < 2 or switched.undetermined:
        return
    if switched.text not in (None, "", "0"):
        return
    yield Finding(
        (
            f"{engines} engines start together, and torch {cache.torch} lets one read a cache entry that "
            "another is still writing"
        ),
        Evidence(
            f"{SWITCHED_OFF_BY} is {'not set' if switched.text is None else switched.text} for the workers",
            f"torch 2.10, vLLM 0.17, or {SWITCHED_OFF_BY}=1",
            "the sources of torch and vLLM, which do not write entries atomically",
        ),
        remedy=f"set {SWITCHED_OFF_BY}=1 until torch or vLLM is upgraded",
        fix="compile-cache-off",
        subject=Subject("package", "torch", cache.torch),
    )


def _engines(configuration: Configuration) -> int:
    """The number of vLLM engines that compile a model; 0 if none does, or if that is unknown."""
    sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    of_one = [configuration.number(f"{_ROLLOUT}.{size}") or 1 for size in sizes]
    gpus = [configuration.number(f"trainer.{key}") or 0 for key in ("nnodes", "n_gpus_per_node")]
    if (
        configuration.get(f"{_ROLLOUT}.name") != "vllm"
        or configuration.get(f"{_ROLLOUT}.enforce_eager") is not False
    ):
        return 0
    return int(gpus[0] * gpus[1] // (of_one[0] * of_one[1]))
