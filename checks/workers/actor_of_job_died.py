"""RAY129: an actor that a running job needs by name has died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from verl_doctor.checks.workers._worker_groups import JOB, runs, why_dead
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor
from verl_doctor.toolkit.collectors.ray.worker_groups import REGISTER_CENTRE, is_member
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

_MOST = 4
_INTENDED = "INTENDED_"  # common.proto, WorkerExitType: INTENDED_USER_EXIT, INTENDED_SYSTEM_EXIT
_UNEXPECTED = frozenset({"WORKER_DIED", "NODE_DIED", "OUT_OF_MEMORY"})


def _server(state: str = "DEAD", **changes: Any) -> RayActor:
    return RayActor(
        **{
            "actor": "s0",
            "state": state,
            "name": "vllm_server_0_0",
            "namespace": "train",
            "class_name": "vLLMHttpServer",
            "job": JOB.job,
            "address": "10.0.0.5",
            "pid": 77,
            **changes,
        }
    )


def _examples() -> list[Example]:
    return [
        Example("alive", (runs(_server("ALIVE")),)),
        Example("ended by its job", (runs(_server(end="RAY_KILL")),)),
        Example("nothing needed the actor", (runs(_server(end="OUT_OF_SCOPE")),)),
        Example("its job has ended", (runs(_server(end="WORKER_DIED"), finished=True),)),
        Example(
            "another has its name now", (runs(_server(end="WORKER_DIED"), _server("ALIVE", actor="s1")),)
        ),
        Example("the actor had no name", (runs(_server(end="WORKER_DIED", name="")),)),
        Example(
            "the engine's server was killed",
            (runs(_server(end="WORKER_DIED", died="Worker exit type: SYSTEM_ERROR")),),
            "1 actor of job 01000000 has died: vllm_server_0_0 (vLLMHttpServer)",
        ),
        Example(
            "the actor ended itself, as the supervisor of a submitted job does",
            (
                runs(
                    _server(
                        end="WORKER_DIED",
                        died=(
                            "Worker exit type: INTENDED_USER_EXIT Worker exit detail: User requested to "
                            "exit the actor."
                        ),
                    )
                ),
            ),
        ),
        Example("killed to free memory", (runs(_server(end="OUT_OF_MEMORY")),), "has died"),
    ]


@check("RAY129", severity="warning", examples=_examples)
def actor_of_job_died(clusters: RayClusters) -> Iterator[Finding]:
    """An actor that a running job needs by name has died.

    ## Why it matters

    The servers of the rollout, the workers of agent loop and reward, and verl's queues are actors with names,
    which others look up and call. Nothing restarts them. A trainer that waits for a dead actor may wait
    forever, without a message.

    ## How to fix

    Look at its log, in the folder of the session on its node: `logs/worker-*-PID.err`. If Ray killed it to
    free memory, use fewer workers or more memory. Then restart the job.
    """
    for cluster in clusters.concerned:
        if not cluster.has_read("actors") or not cluster.has_read("jobs"):
            continue
        alive = {(actor.namespace, actor.name) for actor in cluster.actors if actor.state != "DEAD"}
        running = {job.job for job in cluster.jobs if not job.finished}
        dead = [
            actor
            for actor in cluster.actors
            if actor.job in running and _is_missed(actor) and (actor.namespace, actor.name) not in alive
        ]
        for job, number in Counter(actor.job for actor in dead).items():
            mine = [actor for actor in dead if actor.job == job]
            first = max(mine, key=lambda actor: -actor.ended)
            yield Finding(
                f"{counted(number, 'actor')} of job {job} {'has' if number == 1 else 'have'} died: "
                + listed((f"{actor.name} ({actor.class_name.rpartition('.')[2]})" for actor in mine), _MOST),
                Evidence(
                    f"{first.name}, process {first.pid} on {first.address}: {why_dead(first)}",
                    "alive as long as their job",
                    f"the GCS at {cluster.address}",
                ),
                subject=Subject("actor", first.name, job),
                remedy=(
                    f"see {cluster.session or 'the session'}/logs/worker-*-{first.pid}.err on "
                    f"{first.address or 'its node'}; then restart the job"
                ),
            )


def _is_missed(actor: RayActor) -> bool:
    """Whether a named actor that is not a rank of a worker group died."""
    return (
        actor.state == "DEAD"
        and actor.end in _UNEXPECTED
        and _INTENDED not in actor.died
        and bool(actor.name)
        and not is_member(actor)
        and not actor.name.endswith(REGISTER_CENTRE)
    )
