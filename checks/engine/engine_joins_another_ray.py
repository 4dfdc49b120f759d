"""RAY121: the engine process of the async rollout would join another Ray than its workers are in."""

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
)
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.engine_ray import EngineRay
from verl_doctor.toolkit.collectors.ray.engine_reach import AUTO, EngineReach
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_SPAWN = "vLLM does not where VLLM_WORKER_MULTIPROC_METHOD is spawn already"
_FILE = "/tmp/ray/ray_current_cluster"
_HERE = "10.0.0.1:6379"
_ANOTHER = EngineReach(
    passed_by="",
    unsure="",
    joins="10.0.0.9:6379",
    given_by="RAY_ADDRESS of Ray's workers",
    because=_SPAWN,
    job=_HERE,
)


def _examples() -> list[Example]:
    return [
        Example("vLLM passes on the address", (ENGINE, EngineReach(passed_by=VLLM, job=_HERE), *ASYNC)),
        Example(
            "the file names the same",
            (
                ENGINE,
                EngineReach(passed_by="", unsure="", joins=_HERE, given_by=_FILE, because=_SPAWN, job=_HERE),
                *ASYNC,
            ),
        ),
        Example(
            "the only Ray that runs here",
            (
                ENGINE,
                EngineReach(passed_by="", unsure="", joins=AUTO, given_by="", because=_SPAWN, job=_HERE),
                *ASYNC,
            ),
        ),
        Example("the rollout is synchronous", (ENGINE, _ANOTHER, *SYNC)),
        Example("the engine starts a new Ray", (ENGINE, EngineReach(because=_SPAWN, job=_HERE), *ASYNC)),
        Example("RAY_ADDRESS names another", (ENGINE, _ANOTHER, *ASYNC), "joins the Ray at 10.0.0.9:6379"),
        Example(
            "the job starts its own, and a file names another",
            (
                ENGINE,
                EngineReach(passed_by="", unsure="", joins="10.0.0.9:6379", given_by=_FILE, because=_SPAWN),
                NO_JOB,
            ),
            "its workers are in the Ray that the job starts",
        ),
    ]


@check("RAY121", phase="engine", applies=rollout_is_another, examples=_examples)
def engine_joins_another_ray(
    engine: EngineRay, reach: EngineReach, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The engine process of the async rollout would join a different Ray from its workers.

    ## Why it matters

    In verl 0.4 and 0.5 the vLLM engine of the async rollout is a child of a Ray actor and calls `ray.init`
    without an address. Ray then uses RAY_ADDRESS, or the address in the file `ray_current_cluster`: that of
    the last Ray started on the node, running or not. In another cluster it finds 0 of its workers; at an
    address without a Ray it waits for minutes.

    ## How to fix

    `verl-doctor fix --select RAY121` shows an edit of verl that makes the engine process join its parent's
    Ray. Or give Ray's workers the right RAY_ADDRESS, or none.

    ## References

    verl-project/verl#1365, rllm-org/rllm#166
    """
    if not reach.astray or not reach.joins:
        return
    workers = f"at {reach.job}" if reach.job else "that the job starts"
    yield Finding(
        (
            f"the engine process of the async rollout joins the Ray at {reach.joins}, while its workers are "
            f"in the Ray {workers}"
        ),
        Evidence(
            f"{reach.joins}, from {reach.given_by}: nothing else gives it an address, and {reach.because}",
            "the address of the Ray that holds the workers",
            engine.path,
        ),
        Location(engine.path, engine.line),
        remedy=(
            f"make the actor pass on the address of its Ray, or remove the other one from {reach.given_by}"
        ),
        severity=certain(engine, configuration),
        stops=("async rollout",),
        phase="engine",
        also=places(engine),
        fix="engine-leaves-other-ray",
        subject=Subject("source", engine.path, reach.joins),
    )
