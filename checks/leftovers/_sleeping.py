"""Shared by the rules about sleeping engines.

It covers how much of an engine's memory has an explanation, and an engine for examples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.vllm.engine_log import EngineLog
from verl_doctor.toolkit.collectors.vllm.sleeping_engines import SleepingEngine
from verl_doctor.toolkit.rule import Subject

CONTEXT = 1.0
"""GiB that a CUDA context with its kernels and an NCCL communicator may take; both count together."""

_TRAINER = Holder(pid=12, memory=12_000, role="ray worker", title="ray::WorkerDict", mine=True)
_ASLEEP = SleepingEngine(
    pid=4711,
    title="VLLM::EngineCore",
    gpu=0,
    held=2_600,
    log=EngineLog(asleep=True, freed=118.3, in_use=15.95, weights=14.25, cache=101.5, graphs=1.5),
    path="/tmp/run.log",
    others=(_TRAINER,),
)


def asleep(**changes: Any) -> SleepingEngine:
    """A sleeping engine that holds no more memory than it needs, next to a trainer, for examples."""
    return replace(_ASLEEP, **changes)


def about(engine: SleepingEngine) -> Subject:
    """The engine as a subject: its title, which all engines share, and its GPU."""
    return Subject("process", engine.title, f"GPU {engine.gpu}")


def held(engine: SleepingEngine) -> float:
    """GiB of the GPU that the engine's process holds."""
    return engine.held / 1024


def held_awake(engine: SleepingEngine) -> float:
    """GiB of weights and KV cache that it held while awake."""
    return (engine.log.weights or 0.0) + (engine.log.cache or 0.0)


def kept_back(engine: SleepingEngine) -> float:
    """GiB of weights and KV cache that its last sleep did not release; 0 if unknown.

    A partly awake engine releases less, and does not hold the rest.
    """
    log = engine.log
    if log.weights is None or log.cache is None or log.freed is None:
        return 0.0
    stayed = held_awake(engine) - log.freed
    return stayed if 0.0 < stayed <= held(engine) else 0.0


def unexplained(engine: SleepingEngine) -> float:
    """GiB that are neither CUDA graphs, according to the engine's log, nor a context."""
    return held(engine) - (engine.log.graphs or 0.0) - CONTEXT
