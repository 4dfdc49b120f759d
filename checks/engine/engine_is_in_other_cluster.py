"""RAY124: an engine process that runs is in another Ray than its workers."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.engine._engine_live import ELSEWHERE, SERVER, WORKERS, engine, lost_engines, running
from verl_doctor.checks.shared.ray import joins
from verl_doctor.checks.shared.running_job import of_another_job
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_TRAINS = running(SERVER, *WORKERS, cluster="ab12")
_NEW = running(jobs=(engine(),), address="10.0.0.5:44401", by_driver=True, cluster="cd34")
_ANOTHER = running(jobs=(engine(),), address="10.0.0.9:6379", cluster="ef56")
_BOTH = running(SERVER, *WORKERS, jobs=(engine(),), address="10.0.0.9:6379", cluster="ef56")


def _examples() -> list[Example]:
    return [
        Example(
            "the engine is in the workers' cluster", (joins(running(SERVER, *WORKERS, jobs=(engine(),))),)
        ),
        Example("another namespace of the same", (joins(running(SERVER, *ELSEWHERE, jobs=(engine(),))),)),
        Example("two jobs, each in its own Ray", (joins(_TRAINS, _BOTH),)),
        Example(
            "its parent is on another machine",
            (
                joins(
                    _TRAINS, running(jobs=(engine(address="10.0.0.7"),), address="10.0.0.7:1", cluster="cd34")
                ),
            ),
        ),
        Example(
            "the engine has started a cluster",
            (joins(_TRAINS, _NEW),),
            "has started its own Ray at 10.0.0.5:44401",
        ),
        Example(
            "the engine has joined another cluster",
            (joins(_TRAINS, _ANOTHER),),
            "is in the Ray at 10.0.0.9:6379",
        ),
    ]


@check("RAY124", phase="engine", examples=_examples)
def engine_is_in_other_cluster(clusters: RayClusters, launch: Launch | Unknown) -> Iterator[Finding]:
    """A running engine process is in a different Ray from its workers.

    ## Why it matters

    In verl 0.4 and 0.5 the vLLM engine of the async rollout calls `ray.init` itself. Without the address of
    its parent's Ray it joins the one that RAY_ADDRESS or Ray's address file names, or starts a new, empty
    Ray: `has 0 actors`. A Ray that it started ends with it.

    ## How to fix

    End the job. `verl-doctor check LAUNCH_SCRIPT` reports what leads it there (RAY120, RAY121), and
    `verl-doctor fix` repairs verl.

    ## References

    verl-project/verl#1365, rllm-org/rllm#147, rllm-org/rllm#166
    """
    for lost in lost_engines(clusters):
        if lost.theirs is not lost.joined:
            started = lost.joined.by_driver
            is_there = (
                f"has started its own Ray at {lost.joined.address}"
                if started
                else f"is in the Ray at {lost.joined.address}"
            )
            yield Finding(
                (
                    f"{lost.who} {is_there}, which has 0 of its workers; {len(lost.workers)} are in the Ray "
                    f"at {lost.theirs.address}"
                ),
                Evidence(
                    (
                        f"job {lost.job.job} at {lost.joined.address}; {lost.workers[0].name} at "
                        f"{lost.theirs.address}"
                    ),
                    f"all at {lost.theirs.address}",
                    f"the GCS at {lost.joined.address} and at {lost.theirs.address}",
                ),
                remedy=(
                    "end the job; verl-doctor fix LAUNCH_SCRIPT --select RAY120,RAY121 shows the cause and "
                    "the repair"
                ),
                severity=of_another_job(launch),
                subject=lost.subject,
            )
