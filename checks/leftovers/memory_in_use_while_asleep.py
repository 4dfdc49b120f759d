"""LEFT113: memory in use while an engine sleeps, and which processes hold it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.leftovers._sleeping import CONTEXT, about, asleep, held
from verl_doctor.checks.shared.gpus import NVML, gib
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.vllm.sleeping_engines import SleepingEngine, SleepingEngines
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, check
from verl_doctor.toolkit.text import listed

_SHOWN = 4
_SILENT = replace(asleep().log, graphs=None)


def _examples() -> list[Example]:
    return [
        Example("no engine sleeps", (SleepingEngines(),)),
        Example(
            "next to a trainer",
            (SleepingEngines((asleep(),)),),
            (
                "2.5 GiB of GPU 0 belong to VLLM::EngineCore, which sleeps (CUDA graphs 1.5 GiB, the rest a "
                "context, NCCL and what cannot be told apart); 11.7 GiB ray::WorkerDict (process 12)"
            ),
        ),
        Example(
            "by itself, without graphs",
            (SleepingEngines((asleep(others=(), log=_SILENT),)),),
            "(a context, NCCL and",
        ),
        Example(
            "in a worker",
            (SleepingEngines((asleep(alone=False),)),),
            "in which an engine sleeps beside the trainer",
        ),
        Example(
            "next to another container",
            (SleepingEngines((asleep(nobody=2048),)),),
            "2.0 GiB no visible process",
        ),
    ]


@check("LEFT113", severity="info", cost="live", examples=_examples)
def memory_in_use_while_asleep(sleeping: SleepingEngines) -> Iterator[Finding]:
    """Memory in use while an engine sleeps, and which processes hold it.

    ## Why it matters

    `Sleep mode freed 118.30 GiB memory, 15.95 GiB memory is still in use` counts the memory that all
    processes hold on the GPU, but is often read as the engine's. Usually most of it belongs to the trainer.

    ## How to fix

    Nothing, unless a process holds more than you expect. To reduce the trainer's share, offload parameters
    and optimizer states (`actor_rollout_ref.actor.fsdp_config.param_offload=True`, `optimizer_offload=True`).
    The driver reports how much memory a process holds, not what for: of the engine's share, only the CUDA
    graphs are known, from its own log.
    """
    for engine in sleeping.engines:
        yield Finding(
            "; ".join(_shares(engine)),
            Evidence(
                found=(
                    f"at its last sleep: freed {engine.log.freed:g} GiB, {engine.log.in_use:g} GiB in use "
                    "by all processes"
                ),
                wanted=f"about {CONTEXT:g} GiB and its CUDA graphs in the engine, the rest in the trainer",
                read_from=f"{NVML}, now",
            ),
            subject=about(engine),
            location=Location(engine.path),
        )


def _shares(engine: SleepingEngine) -> Iterator[str]:
    graphs = f"CUDA graphs {engine.log.graphs:.1f} GiB, the rest " if engine.log.graphs else ""
    whose = "which sleeps" if engine.alone else "in which an engine sleeps beside the trainer"
    yield (
        f"{held(engine):.1f} GiB of GPU {engine.gpu} belong to {engine.title}, {whose} ({graphs}a "
        "context, NCCL and what cannot be told apart)"
    )
    if engine.others:
        yield listed(map(_share, sorted(engine.others, key=lambda other: -(other.memory or 0))), _SHOWN)
    if engine.nobody:
        yield f"{gib(engine.nobody)} no visible process"


def _share(holder: Holder) -> str:
    amount = gib(holder.memory) if holder.memory is not None else "an unknown part"
    return f"{amount} {holder.title or 'a hidden process'} (process {holder.pid})"
