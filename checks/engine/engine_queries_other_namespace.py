"""RAY122: the engine process of the async rollout looks for its workers in its own namespace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.engine._engine import ASYNC, ENGINE, NO_JOB, SYNC, certain, places, rollout_is_another
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.engine_ray import EngineRay
from verl_doctor.toolkit.collectors.ray.engine_reach import EngineReach
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_NAMELESS = replace(ENGINE, namespace="")
_REACH = EngineReach(passed_by=ENGINE.vllm)


def _examples() -> list[Example]:
    return [
        Example("the engine queries the namespace of its workers", (ENGINE, _REACH, *ASYNC)),
        Example("the rollout is synchronous", (_NAMELESS, _REACH, *SYNC)),
        Example("the engine names no namespace", (_NAMELESS, _REACH, *ASYNC), "in its own namespace"),
        Example("the kind of rollout is unknown", (_NAMELESS, _REACH, NO_JOB), "in its own namespace"),
    ]


@check("RAY122", phase="engine", applies=rollout_is_another, examples=_examples)
def engine_queries_other_namespace(
    engine: EngineRay, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The engine process of the async rollout would look for its workers in its own namespace.

    ## Why it matters

    Ray gives every `ray.init` without a namespace a new, anonymous one, and `ray.util.list_named_actors()`
    lists only the actors in it. The engine process finds 0 of its workers, although they run in the same
    cluster.

    ## How to fix

    Call `ray.init(namespace=namespace)` with the namespace at the start of the `instance_id`; `verl-doctor
    fix --select RAY122` shows the edit.

    ## References

    verl-project/verl#1138
    """
    if engine.namespace:
        return
    yield Finding(
        (
            "the engine process of the async rollout looks for its workers in its own namespace, which "
            "contains none"
        ),
        Evidence(
            "ray.init without namespace=",
            "the namespace of the workers, which the instance_id names",
            engine.path,
        ),
        Location(engine.path, engine.line),
        remedy="pass ray.init the namespace of the instance_id",
        severity=certain(engine, configuration),
        stops=("async rollout",),
        phase="engine",
        also=places(engine),
        fix="engine-keeps-namespace",
        subject=Subject("source", engine.path),
    )
