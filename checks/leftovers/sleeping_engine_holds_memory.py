"""LEFT112: a sleeping engine holds memory that it should have released."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.leftovers._sleeping import CONTEXT, about, asleep, held_awake, kept_back, unexplained
from verl_doctor.checks.shared.gpus import NVML, gib
from verl_doctor.toolkit.collectors.vllm.sleeping_engines import SleepingEngine, SleepingEngines
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, check

_MUCH = 3.0  # GiB
_LOG = asleep().log


def _examples() -> list[Example]:
    return [
        Example("no engine sleeps", (SleepingEngines(),)),
        Example("the engine holds only its graphs and a context", (SleepingEngines((asleep(),)),)),
        Example(
            "the engine runs in a worker of the trainer",
            (SleepingEngines((asleep(held=60_000, alone=False),)),),
        ),
        Example(
            "the engine was partly woken",
            (SleepingEngines((asleep(held=8_000, log=replace(_LOG, freed=14.25)),)),),
            "5.3 GiB are neither CUDA graphs nor a context",
        ),
        Example(
            "nothing was released",
            (SleepingEngines((asleep(held=120_000, log=replace(_LOG, freed=0.0)),)),),
            "its sleep released none of 115.8 GiB of weights and KV cache",
        ),
        Example(
            "the weights stayed",
            (SleepingEngines((asleep(held=17_200, log=replace(_LOG, freed=101.5)),)),),
            (
                "VLLM::EngineCore (process 4711) sleeps and holds 16.8 GiB of GPU 0: its sleep released "
                "101.5 of 115.8 GiB"
            ),
        ),
        Example(
            "something else",
            (SleepingEngines((asleep(held=17_200, log=replace(_LOG, weights=None)),)),),
            "14.3 GiB are neither CUDA graphs nor a context",
        ),
    ]


@check("LEFT112", severity="warning", examples=_examples)
def sleeping_engine_holds_memory(sleeping: SleepingEngines) -> Iterator[Finding]:
    """A sleeping engine holds memory that it should have released.

    ## Why it matters

    While the engine sleeps, the trainer on the same GPU uses its memory: what the engine keeps makes the step
    run out of memory. What vLLM calls `still in use` covers all processes, including the trainer. This
    finding covers the engine's process alone, as the driver counts it. CUDA graphs, a CUDA context and NCCL's
    buffers stay by design; weights and KV cache should not.

    ## How to fix

    If nothing was released, look for `expandable_segments:True` in PYTORCH_CUDA_ALLOC_CONF and
    PYTORCH_ALLOC_CONF: such memory lies outside the pool that sleeps. If the weights stayed, they were loaded
    outside that pool, for instance by a plugin or a quantisation that copies them. Graphs shrink with fewer
    capture sizes, and disappear with `rollout.enforce_eager=True`. NVML does not report what a process's
    memory holds, so the rest remains one number.

    ## References

    `Worker.sleep` in vllm/v1/worker/gpu_worker.py
    """
    for engine in sleeping.engines:
        if engine.alone and unexplained(engine) > _MUCH:
            yield Finding(
                (
                    f"{engine.title} (process {engine.pid}) sleeps and holds {gib(engine.held)} of GPU "
                    f"{engine.gpu}: {_what(engine)}"
                ),
                Evidence(
                    found=(
                        f"{gib(engine.held)} in the engine's process; its log: freed {engine.log.freed:g} "
                        f"GiB, {engine.log.in_use:g} GiB in use by all"
                    ),
                    wanted=(
                        f"CUDA graphs ({engine.log.graphs or 0:g} GiB by its log) and a context (about "
                        f"{CONTEXT:g} GiB)"
                    ),
                    read_from=NVML,
                ),
                subject=about(engine),
                location=Location(engine.path),
                remedy="check what was loaded: weights and KV cache outside vLLM's pool do not sleep",
            )


def _what(engine: SleepingEngine) -> str:
    log = engine.log
    stayed = kept_back(engine)
    if stayed > _MUCH and log.freed is not None:
        of = f"{held_awake(engine):.1f} GiB of weights and KV cache"
        return f"its sleep released {f'{log.freed:g}' if log.freed else 'none'} of {of}"
    return f"{unexplained(engine):.1f} GiB are neither CUDA graphs nor a context"
