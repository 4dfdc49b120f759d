"""RAY123: an engine process that runs looks for its workers in a namespace in which there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.engine._engine_live import ELSEWHERE, SERVER, WORKERS, engine, lost_engines, running
from verl_doctor.checks.shared.ray import joins
from verl_doctor.checks.shared.running_job import of_another_job
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_DEAD = tuple(replace(actor, state="DEAD") for actor in ELSEWHERE)
_ENGINE = (engine(),)


def _examples() -> list[Example]:
    return [
        Example("the engine finds its workers", (joins(running(SERVER, *WORKERS, jobs=_ENGINE)),)),
        Example("there are none anywhere", (joins(running(SERVER, *_DEAD, jobs=_ENGINE)),)),
        Example("another user's process", (joins(running(*ELSEWHERE, jobs=_ENGINE)),)),
        Example(
            "a driver of another kind",
            (joins(running(SERVER, *ELSEWHERE, jobs=(engine(entrypoint="python train.py"),))),),
        ),
        Example(
            "another has been started since",
            (joins(running(SERVER, *WORKERS, jobs=(engine("old", finished=True), engine(started=200.0)))),),
        ),
        Example(
            "the actors of the cluster are unknown",
            (joins(running(SERVER, *ELSEWHERE, jobs=_ENGINE, unread=("actors",))),),
        ),
        Example(
            "the engine is in another namespace",
            (joins(running(SERVER, *ELSEWHERE, jobs=_ENGINE)),),
            "0 of its workers are in namespace train, and 2 in namespace other",
        ),
        Example(
            "the engine was in another namespace",
            (joins(running(SERVER, *ELSEWHERE, jobs=(engine(finished=True),))),),
            "looked for",
        ),
        Example(
            "the engine is in an anonymous namespace",
            (joins(running(SERVER, *WORKERS, jobs=(engine("6f1c"),))),),
            "0 of its workers are in namespace 6f1c, and 2 in namespace train",
        ),
    ]


@check("RAY123", phase="engine", examples=_examples)
def engine_is_in_other_namespace(clusters: RayClusters, launch: Launch | Unknown) -> Iterator[Finding]:
    """A running engine process looks for its workers in a namespace that has none.

    ## Why it matters

    In verl 0.4 and 0.5 the vLLM engine of the async rollout finds its workers by name in one Ray namespace:
    that of its parent actor, or an anonymous one when `ray.init` names none. It does not see workers that
    another driver started in another namespace, although they are in the same Ray: `has 0 actors`.

    ## How to fix

    Start the trainer and the rollout in one namespace: `ray.init(namespace=...)` in both. If the engine
    process itself names none, `verl-doctor fix --select RAY122` repairs verl.

    ## References

    verl-project/verl#1138, verl-project/verl#1365
    """
    for lost in lost_engines(clusters):
        if lost.theirs is lost.joined:
            looks = "looked" if lost.job.finished else "looks"
            yield Finding(
                (
                    f"{lost.who} {looks} for its workers in the wrong namespace: 0 of its workers are in "
                    f"namespace {lost.job.namespace}, and {len(lost.workers)} in {lost.namespaces}"
                ),
                Evidence(
                    (
                        f"job {lost.job.job} in namespace {lost.job.namespace}; {lost.workers[0].name} in "
                        f"{lost.namespaces}"
                    ),
                    "both in one namespace",
                    f"the GCS at {lost.joined.address}",
                ),
                remedy="use one namespace for the trainer and the rollout's server, and start the job again",
                severity=of_another_job(launch),
                subject=lost.subject,
            )
