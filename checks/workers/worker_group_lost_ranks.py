"""RAY125: some ranks of a worker group are dead."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.running_job import of_another_job
from verl_doctor.checks.workers._worker_groups import a_rank, named, ranks, running_groups, runs, why_dead
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor
from verl_doctor.toolkit.collectors.ray.worker_groups import Member, WorkerGroup
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_MOST = 4


def _dead(rank: int, end: str = "WORKER_DIED", died: str = "The actor died unexpectedly.") -> RayActor:
    return a_rank(rank, state="DEAD", end=end, died=died)


def _examples() -> list[Example]:
    return [
        Example("all alive", (runs(a_rank(0), a_rank(1)),)),
        Example("all dead: the job gets the error", (runs(_dead(0), _dead(1)),)),
        Example("its job has ended", (runs(a_rank(0), _dead(1), finished=True),)),
        Example("the rank came back", (runs(a_rank(0), _dead(1), a_rank(1)),)),
        Example(
            "still being made", (runs(a_rank(0, 8), a_rank(1, 8, state="PENDING_CREATION", node="", pid=0)),)
        ),
        Example("the table was not read", (runs(a_rank(0), _dead(1), unread=("jobs",)),)),
        Example(
            "one rank of two was killed",
            (runs(a_rank(0), _dead(1)),),
            (
                "rank 1 of 2 of worker group abc123WorkerDict of job 01000000 is dead, and the others wait "
                "for it"
            ),
        ),
        Example(
            "nothing referred to the worker group",
            (runs(a_rank(0), _dead(1, "OUT_OF_SCOPE")),),
            "rank 1 of 2",
        ),
        Example(
            "no longer listed by Ray",
            (runs(a_rank(0, 8), a_rank(3, 8)),),
            "ranks 1, 2 of 8 of worker group abc123WorkerDict of job 01000000 are dead",
        ),
    ]


@check("RAY125", phase="workers", examples=_examples)
def worker_group_lost_ranks(clusters: RayClusters, launch: Launch | Unknown) -> Iterator[Finding]:
    """Some ranks of a worker group are dead.

    ## Why it matters

    The ranks of a group work together: each waits in the next collective until all arrive. verl restarts none
    of them, so the job hangs, often without a message, until NCCL's time limit or forever, and holds all its
    GPUs.

    ## How to fix

    Find out why each died: the evidence contains Ray's message, and its log is `logs/worker-*-PID.err` in the
    session's folder on that node. Then stop the job and restart it from its last checkpoint. Ray ends a rank
    to which nothing refers any more: the process that creates a worker group must keep a reference to it, not
    only to the groups that it spawned.
    """
    for cluster, group in running_groups(clusters):
        dead = group.of("dead")
        gone = [*group.lost, *(member.rank for member in dead)]
        if gone:
            are, them = ("is", "it") if len(gone) == 1 else ("are", "them")
            yield Finding(
                (
                    f"{ranks(gone, group.world_size)} of {named(group)} {are} dead, and the others wait for "
                    f"{them}"
                ),
                Evidence(
                    listed(_why(dead, group), _MOST), "all ranks alive", f"the GCS at {cluster.address}"
                ),
                severity=of_another_job(launch),
                subject=Subject("worker group", group.name),
                remedy=_remedy(dead, cluster),
            )


def _why(dead: tuple[Member, ...], group: WorkerGroup) -> Iterator[str]:
    for member in dead:
        where = (
            f"process {member.actor.pid} on {member.actor.address}"
            if member.actor.address
            else "never started"
        )
        yield f"rank {member.rank} ({where}): {why_dead(member.actor)}"
    if group.lost:
        yield f"{ranks(group.lost, 0)}: no longer listed by Ray"


def _remedy(dead: tuple[Member, ...], cluster: RayCluster) -> str:
    ends = {member.actor.end for member in dead}
    if "NODE_DIED" in ends:
        why = "find out first why their node died"
    elif "OUT_OF_MEMORY" in ends:
        why = "use fewer or smaller workers, or more memory: Ray killed it to free memory"
    elif ends & {"OUT_OF_SCOPE", "REF_DELETED"}:
        why = "keep a reference to the worker group: Ray ends actors to which nothing refers"
    else:
        pid = next((member.actor.pid for member in dead if member.actor.pid), 0)
        why = (
            f"read the end of {cluster.session or 'the session'}/logs/worker-*-{pid}.err on its node"
            if pid
            else ""
        )
    again = "end the job, and start it from its last checkpoint"
    return f"{why}; then {again}" if why else again
