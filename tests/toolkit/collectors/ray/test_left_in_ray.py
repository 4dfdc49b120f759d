"""Leftovers of finished jobs in a Ray cluster, in invented tables: what is left, and why the rest is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.left_in_ray import CLEANER, YOUNG, left_in
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayJob

NOW = 1_000_000.0
DONE = RayJob(
    "01", "train", "10.0.0.1", 77, finished=True, started=1.0, ended=NOW - 2 * YOUNG, entrypoint="python t.py"
)
LIVE = RayJob("02", "other", "10.0.0.1", 78, started=1.0)
ACTOR = RayActor("a1", "ALIVE", "rm", "train", "Reward", detached=True, job="01", needs={"GPU": 1.0})
GROUP = RayGroup("g1", "CREATED", "pool", "train", "01", detached=True, bundles=({"GPU": 8.0},))
CLUSTER = RayCluster("10.0.0.1:6379", jobs=(DONE,), actors=(ACTOR,), groups=(GROUP,))
PROOF = (
    "job 01, which made it, has finished: python t.py",
    "it is detached, so Ray itself never ends it",
    "no driver is connected to this Ray that could hold or find it",
)


def judged(cluster: RayCluster, *, mine: bool = True) -> dict[str, tuple[str, ...] | str]:
    """The proof of each by its name, or why it is kept."""
    return {actor.subject.name: actor.kept or actor.proof for actor in left_in(cluster, NOW, mine=mine)}


def test_leftovers_of_a_finished_job_are_reported() -> None:
    assert judged(CLUSTER) == {"rm": PROOF, "pool": PROOF}
    assert [actor.age for actor in left_in(CLUSTER, NOW, mine=True)] == [2 * YOUNG, 2 * YOUNG]


@pytest.mark.parametrize(
    "cluster",
    [
        RayCluster("x"),
        replace(CLUSTER, jobs=(replace(DONE, finished=False, ended=0.0),)),  # its own job is connected
        replace(CLUSTER, actors=(replace(ACTOR, state="DEAD"),), groups=(replace(GROUP, state="REMOVED"),)),
        replace(CLUSTER, actors=(replace(ACTOR, detached=False),), groups=()),  # Ray ends it itself
        replace(CLUSTER, actors=(replace(ACTOR, name="SERVE_PROXY", namespace="serve"),), groups=()),
        replace(CLUSTER, actors=(replace(ACTOR, namespace="_ray_internal_dashboard"),), groups=()),
    ],
)
def test_running_and_ended_jobs_are_not_reported(cluster: RayCluster) -> None:
    assert judged(cluster) == {}


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (replace(CLUSTER, jobs=(DONE, LIVE)), "a driver is connected that may use it (job 02, process 78 on 10.0.0.1)"),
        (
            replace(CLUSTER, actors=(ACTOR, RayActor("s", "ALIVE", "SERVE_CONTROLLER_ACTOR", "serve", detached=True))),
            "SERVE_CONTROLLER_ACTOR runs without a driver and may use it",
        ),
        (
            replace(CLUSTER, actors=(ACTOR, RayActor("s", "ALIVE", "_ray_internal_job_actor_raysubmit_1", "SUPERVISOR_ACTOR_RAY_NAMESPACE", detached=True))),
            "_ray_internal_job_actor_raysubmit_1 runs without a driver and may use it",
        ),
        (
            replace(CLUSTER, jobs=(DONE, replace(LIVE, finished=True, ended=NOW - 1))),
            "a job ended less than two minutes ago, and the next may be about to start",
        ),
        (replace(CLUSTER, jobs=()), "its job is not in the table of jobs: it is unknown whether it has finished"),
        (replace(CLUSTER, unread=("jobs",)), "not everything in this Ray could be read"),
    ],
)  # fmt: skip
def test_leftovers_are_kept_while_a_process_may_need_them(cluster: RayCluster, why: str) -> None:
    assert judged(cluster) == {"rm": why, "pool": why}


def test_cleaning_job_of_this_program_is_not_a_later_job() -> None:
    own = RayJob("03", CLEANER, finished=True, ended=NOW - 1)
    assert judged(replace(CLUSTER, jobs=(DONE, own)))["rm"] == PROOF


def test_ray_of_another_user_is_kept() -> None:
    assert set(judged(CLUSTER, mine=False).values()) == {
        "another user started this Ray, or it runs only on other machines, whose users have to clean it"
    }


def test_placement_group_is_removed_only_with_its_actors() -> None:
    inside = replace(ACTOR, group="g1")
    assert judged(replace(CLUSTER, actors=(inside,)))["pool"] == PROOF
    nameless = replace(inside, name="")
    assert judged(replace(CLUSTER, actors=(nameless,))) == {
        "": "it has no name by which Ray can end it",
        "pool": "actor Reward is in it, or made it, and is kept",
    }
