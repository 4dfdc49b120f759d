"""RAY120: the engine process of the async rollout would start a Ray of its own."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._engine import ASYNC, ENGINE, NO_JOB, SYNC, VLLM, certain, rollout_is_another
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_engine_ray import EngineRay
from verl_doctor.toolkit.fact_engine_reach import EngineReach
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, check

_SPAWN = "vLLM does not where VLLM_WORKER_MULTIPROC_METHOD is spawn already"
_NEW = EngineReach(because=_SPAWN)
_ELSEWHERE = EngineReach(because="this vLLM never does", job="10.0.0.1:6379")


@check(
    "RAY120",
    applies=rollout_is_another,
    examples=[
        Example("vLLM tells it where Ray is", (ENGINE, EngineReach(told_by=VLLM), *ASYNC)),
        Example("it joins the Ray that runs here", (ENGINE, EngineReach("", "10.0.0.1:6379", "/tmp/ray/ray_current_cluster", _SPAWN, "10.0.0.1:6379"), *ASYNC)),
        Example("the rollout is synchronous", (ENGINE, _NEW, *SYNC)),
        Example("another executor", ((EngineRay, Absent("none")), (EngineReach, Absent("none")), *ASYNC)),
        Example("nobody tells it, and the job starts Ray itself", (ENGINE, _NEW, *ASYNC), "starts a Ray of its own"),
        Example("nobody tells it, and it does not find the cluster", (ENGINE, _ELSEWHERE, *ASYNC), "and not that at 10.0.0.1:6379"),
        Example("it is not known how the job rolls out", (ENGINE, _NEW, NO_JOB), "starts a Ray of its own"),
    ],
)  # fmt: skip
def engine_starts_own_ray(
    engine: EngineRay, reach: EngineReach, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The engine process of the async rollout would start a Ray of its own.

    ## Why it matters

    In verl 0.4 and 0.5 the vLLM engine of the async rollout is a child of a Ray actor, and finds the workers by their names:
    it calls `ray.init` for that, with a namespace and no address. A `ray.init` to which neither RAY_ADDRESS nor Ray's address
    file names a cluster starts a new, empty one: `instance_id: ... has 0 actors, but vllm_dp_size ... is expected`, after the
    model has been loaded. vLLM hands the address on in RAY_ADDRESS when it chooses itself to spawn its processes, and not when
    VLLM_WORKER_MULTIPROC_METHOD=spawn was set before.

    ## How to fix

    `verl-doctor fix --select RAY120` shows an edit of verl after which the engine process joins the Ray of its parent, and never
    starts one. Or unset VLLM_WORKER_MULTIPROC_METHOD for Ray's workers: vLLM spawns in a Ray actor anyway.

    ## References

    verl-project/verl#1365, rllm-org/rllm#147, rllm-org/rllm#166, vllm-project/vllm#15324
    """
    if not reach.astray or reach.joins:
        return
    instead = f", and not that at {reach.job}" if reach.job else ""
    yield Finding(
        f"the engine process of the async rollout starts a Ray of its own{instead}, and finds 0 of its workers",
        Evidence(
            f"nothing tells it where Ray is: {reach.because}, RAY_ADDRESS is not set for Ray's workers, and no address file is "
            "where they look",
            "the address of the Ray that holds the workers",
            engine.path,
        ),
        Location(engine.path, engine.line),
        remedy="let the actor hand on the address of its Ray; or unset VLLM_WORKER_MULTIPROC_METHOD for Ray's workers",
        severity=certain(engine, configuration),
        stops=("async rollout",),
        phase="start",
        fix="engine-joins-own-ray",
    )
