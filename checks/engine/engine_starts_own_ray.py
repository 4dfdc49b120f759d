"""RAY120: the engine process of the async rollout would start a Ray of its own."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.engine._engine import (
    ASYNC,
    ENGINE,
    NO_JOB,
    SYNC,
    VLLM,
    certain,
    places,
    rollout_is_another,
    starts_engine,
)
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.engine_ray import EngineRay
from verl_doctor.toolkit.collectors.ray.engine_reach import EngineReach
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_SPAWN = "vLLM does not where VLLM_WORKER_MULTIPROC_METHOD is spawn already"
_NEW = EngineReach(because=_SPAWN)
_CUDA = EngineReach(passed_by=VLLM, unsure="vLLM does not where cuda_is_initialized() before")
_NO_VLLM = EngineReach(unsure="it is unknown whether vLLM does: vLLM is not installed in this environment")
_ELSEWHERE = EngineReach(because="this vLLM never does", job="10.0.0.1:6379")


def _examples() -> list[Example]:
    return [
        Example("vLLM passes on the address", (ENGINE, EngineReach(passed_by=VLLM), *ASYNC)),
        Example(
            "the engine joins the Ray that runs here",
            (
                ENGINE,
                EngineReach(
                    passed_by="",
                    unsure="",
                    joins="10.0.0.1:6379",
                    given_by="/tmp/ray/ray_current_cluster",
                    because=_SPAWN,
                    job="10.0.0.1:6379",
                ),
                *ASYNC,
            ),
        ),
        Example("the rollout is synchronous", (ENGINE, _NEW, *SYNC)),
        Example("another executor", ((EngineRay, Absent("none")), (EngineReach, Absent("none")), *ASYNC)),
        Example(
            "the engine gets no address, and the job starts Ray itself",
            (ENGINE, _NEW, *ASYNC),
            "starts its own Ray",
        ),
        Example(
            "RAY_ADDRESS requests a new one",
            (ENGINE, EngineReach(given_by="RAY_ADDRESS of Ray's workers", because=_SPAWN), *ASYNC),
            "starts its own Ray",
        ),
        Example(
            "the engine gets no address, and does not find the cluster",
            (ENGINE, _ELSEWHERE, *ASYNC),
            "instead of joining the one at 10.0.0.1:6379",
        ),
        Example("vLLM passes it on in most cases", (ENGINE, _CUDA, *ASYNC), "only vLLM does"),
        Example("vLLM is not installed", (ENGINE, _NO_VLLM, *ASYNC), "only vLLM could"),
        Example("the kind of rollout is unknown", (ENGINE, _NEW, NO_JOB), "starts its own Ray"),
    ]


@check("RAY120", phase="engine", applies=rollout_is_another, examples=_examples)
def engine_starts_own_ray(
    engine: EngineRay, reach: EngineReach, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The engine process of the async rollout would start its own Ray.

    ## Why it matters

    In verl 0.4 and 0.5 the vLLM engine of the async rollout is a child of a Ray actor and finds its workers
    by name. For that it calls `ray.init` with a namespace but no address. If neither RAY_ADDRESS nor Ray's
    address file names a cluster, Ray starts a new, empty one: `instance_id: ... has 0 actors, but
    vllm_dp_size ... is expected`, after the model is loaded. vLLM passes the address on in RAY_ADDRESS if it
    decides itself to spawn its processes, but not if VLLM_WORKER_MULTIPROC_METHOD=spawn is already set.

    ## How to fix

    `verl-doctor fix --select RAY120` shows an edit of verl that makes the engine process join its parent's
    Ray and never start one. Or unset VLLM_WORKER_MULTIPROC_METHOD for Ray's workers: vLLM spawns in a Ray
    actor anyway.

    ## References

    verl-project/verl#1365, rllm-org/rllm#147, rllm-org/rllm#166, vllm-project/vllm#15324
    """
    if reach.unsure and reach.strays:
        yield _unsure(engine, reach, configuration)
    if not reach.astray or reach.joins:
        return
    instead = f" instead of joining the one at {reach.job}" if reach.job else ""
    named = "RAY_ADDRESS is not set for Ray's workers, and no address file is where they look"
    yield Finding(
        f"the engine process of the async rollout starts its own Ray{instead}, and finds 0 of its workers",
        Evidence(
            (
                f"nothing gives it an address: {reach.because}, "
                f"{f'{reach.given_by} is local' if reach.given_by else named}"
            ),
            "the address of the Ray that holds the workers",
            engine.path,
        ),
        Location(engine.path, engine.line),
        remedy=(
            "make the actor pass on the address of its Ray, or unset VLLM_WORKER_MULTIPROC_METHOD for Ray's "
            "workers"
        ),
        severity=certain(engine, configuration),
        stops=("async rollout",),
        phase="engine",
        also=places(engine),
        fix="engine-joins-own-ray",
        subject=Subject("source", engine.path),
    )


def _unsure(engine: EngineRay, reach: EngineReach, configuration: Configuration | Unknown) -> Finding:
    """A warning if the job starts such an engine process, otherwise a hint.

    Only a run shows whether vLLM passes on the address.
    """
    does = "does" if reach.passed_by else "could"
    otherwise = f"joins the Ray at {reach.joins}" if reach.joins else "starts its own Ray"
    return Finding(
        "verl does not pass the address of its Ray to the engine process of the async rollout, "
        f"only vLLM {does}: without it the engine {otherwise} and finds 0 actors",
        Evidence(reach.unsure, "verl passes the address on itself", reach.passed_by or engine.path),
        Location(engine.path, engine.line),
        remedy="if it finds 0 actors, make the actor pass on the address of its Ray",
        severity="warning" if starts_engine(configuration) else "info",
        may_stop=("async rollout",),
        phase="engine",
        also=places(engine),
        fix="engine-joins-own-ray",
        subject=Subject("source", engine.path),
    )
