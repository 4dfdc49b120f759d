"""Shared by the rules about the engine process of verl's async rollout: when they matter, example facts."""

from __future__ import annotations

from typing import Any

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.engine_ray import EngineRay
from verl_doctor.toolkit.collectors.ray.engine_reach import EngineReach
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Location, Severity

MODE, NAME = "actor_rollout_ref.rollout.mode", "actor_rollout_ref.rollout.name"

PATH = "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py"
VLLM = "/env/vllm/utils.py"
ENGINE = EngineRay(path=PATH, line=53, prefix="WorkerDict", namespace="namespace", vllm=VLLM)
NO_JOB = (Configuration, Absent("no launch script was named"))


def rollout_is_another(reach: EngineReach | Unknown, configuration: Configuration | Unknown) -> str | None:
    """Why, by verl's variables and the job's configuration, no engine looks for workers; None if one may."""
    if isinstance(reach, Absent):
        return reach.reason
    if isinstance(configuration, Unknown):
        return None
    mode, name = configuration.get(MODE), configuration.get(NAME)
    if isinstance(mode, str) and mode != "async":
        return f"the rollout is {mode}: only an async one starts an engine process"
    if isinstance(name, str) and name != "vllm":
        return f"the rollout is {name}'s"
    return None


def certain(engine: EngineRay, configuration: Configuration | Unknown) -> Severity | None:
    """The rule's own severity if the job certainly starts the engine process, otherwise a warning."""
    return None if starts_engine(configuration) and not engine.unclear else "warning"


def starts_engine(configuration: Configuration | Unknown) -> bool:
    """Whether the job certainly starts the engine process."""
    return isinstance(configuration, Configuration) and configuration.get(MODE) == "async"


def places(engine: EngineRay) -> tuple[Location, ...]:
    """The other lines of the search for the workers."""
    return tuple(Location(engine.path, line) for line in engine.also)


def rollout(*words: str) -> tuple[Any, ...]:
    """The facts of an example: a job with these overrides."""
    return configured(*(f"+{word}" for word in words), verl="0.4.1")


ASYNC = rollout(f"{MODE}=async")
SYNC = rollout(f"{MODE}=sync")
