"""Actors of a worker group, and the state of each rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayJob
from verl_doctor.toolkit.collectors.ray.worker_groups import (
    ended_jobs,
    makers,
    others,
    state_of,
    worker_groups,
)

DICT = "create_colocated_worker_cls.<locals>.WorkerDict"
JOB = RayJob("01000000", worker="driver")


def actor(name: str, state: str = "ALIVE", cls: str = DICT, **others: Any) -> RayActor:
    return RayActor(
        others.pop("actor", name), state, name, **{"class_name": cls, "job": JOB.job, "node": "n1", **others}
    )


def rank_variables(rank: int, size: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size)}


def cluster(*actors: RayActor, **others: Any) -> RayCluster:
    return RayCluster("10.0.0.1:6379", **{"jobs": (JOB,), "actors": actors, **others})


@pytest.mark.parametrize(
    ("name", "cls", "prefix"),
    [
        ("a1B2c3WorkerDict_0:1", DICT, "a1B2c3"),
        ("WorkerDict_12:0", DICT, ""),
        ("rollout_standalone_0vLLMColocateWorkerExtension_0:0", "vLLMColocateWorkerExtension", "rollout_standalone_0"),
        ("a1B2c3FusedWorker_actor_critic_0:0", "FusedWorker_actor_critic", "a1B2c3"),
        ("my_CriticWorker_1:3", "CriticWorker", "my_"),
    ],
)  # fmt: skip
def test_rank_name_is_parsed(name: str, cls: str, prefix: str) -> None:
    (group,) = worker_groups(cluster(actor(name, cls=cls)))
    assert (group.prefix, group.class_name) == (prefix, cls.rpartition(".")[2])


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("", DICT),
        ("vllm_server_0_0", "vLLMHttpServer"),
        ("a1_register_center", "WorkerGroupRegisterCenter"),
        ("trial_0:1", DICT),
        ("WorkerDict_0:x", DICT),
        ("x_0:1", ""),
    ],
)
def test_other_actor_names_are_not_ranks(name: str, cls: str) -> None:
    found = cluster(actor(name, cls=cls))
    assert worker_groups(found) == ()
    assert others(found) == found.actors


def test_ranks_are_recognised_by_their_variables() -> None:
    """A part of a resource pool begins at any of its places."""
    (group,) = worker_groups(
        cluster(
            actor("xWorkerDict_1:0", variables=rank_variables(1, 2)),
            actor("xWorkerDict_0:7", variables=rank_variables(0, 2)),
        )
    )
    assert [(member.rank, member.actor.name) for member in group.members] == [
        (0, "xWorkerDict_0:7"),
        (1, "xWorkerDict_1:0"),
    ]
    assert (group.world_size, group.absent) == (2, ())


def test_ranks_follow_from_positions_without_variables() -> None:
    (group,) = worker_groups(cluster(*(actor(f"xWorkerDict_{n}:{i}") for n in range(2) for i in range(2))))
    assert [member.rank for member in group.members] == [0, 1, 2, 3]
    assert group.world_size == 0


def test_missing_rank_is_lost_only_if_a_later_one_exists() -> None:
    (group,) = worker_groups(
        cluster(*(actor(f"xWorkerDict_0:{n}", variables=rank_variables(n, 6)) for n in (0, 3)))
    )
    assert group.absent == (1, 2, 4, 5)
    assert group.lost == (1, 2)


def test_living_actor_replaces_a_dead_one_of_the_same_name() -> None:
    dead, alive = actor("xWorkerDict_0:0", "DEAD", actor="old", ended=9.0), actor("xWorkerDict_0:0")
    for both in ((dead, alive), (alive, dead)):
        (group,) = worker_groups(cluster(*both))
        assert [member.actor for member in group.members] == [alive]
        assert not group.over


def test_groups_of_two_jobs_with_one_prefix() -> None:
    """The prefixes of rollout groups are not random."""
    later = RayJob("02000000")
    first = actor("rollout_standalone_0WorkerDict_0:0", "DEAD")
    second = replace(first, actor="b", state="ALIVE", job=later.job)
    found = worker_groups(cluster(first, second, jobs=(JOB, later)))
    assert [(group.job, group.over) for group in found] == [(later.job, False), (JOB.job, True)]


@pytest.mark.parametrize(
    ("state", "node", "finished", "expected"),
    [
        ("ALIVE", "n1", False, "alive"),
        ("ALIVE", "n1", True, "left behind"),
        ("DEAD", "n1", True, "dead"),
        ("RESTARTING", "", False, "restarting"),
        ("PENDING_CREATION", "n1", False, "starting"),
        ("PENDING_CREATION", "", False, "waiting"),
        ("DEPENDENCIES_UNREADY", "", False, "waiting"),
    ],
)
def test_states(state: str, node: str, finished: bool, expected: str) -> None:
    one = actor("x", state, node=node)
    assert state_of(one, ended_jobs(cluster(one, jobs=(replace(JOB, finished=finished),)))) == expected


def test_actor_of_an_unknown_job_is_not_left_behind() -> None:
    assert state_of(actor("x"), ended_jobs(cluster(jobs=()))) == "alive"


def test_roles() -> None:
    first = actor("xWorkerDict_0:0", roles=("actor_rollout", "critic"))
    fused = actor("yFusedWorker_actor_rollout_critic_0:0", cls="FusedWorker_actor_rollout_critic")
    plain = actor("zCriticWorker_0:0", cls="CriticWorker")
    found = {group.prefix: group.roles for group in worker_groups(cluster(first, fused, plain))}
    assert found == {"x": ("actor_rollout", "critic"), "y": ("actor_rollout", "critic"), "z": ()}


def test_creator_of_an_actor() -> None:
    runner = actor("runner", cls="TaskRunner", owner="driver", worker="w1")
    rank = actor("xWorkerDict_0:0", owner="w1", worker="w2")
    lone = actor("lone", owner="w9")
    found = cluster(runner, rank, lone)
    there = makers(found)
    assert there.get(runner.owner) == JOB
    assert there.get(rank.owner) == runner
    assert there.get(lone.owner) is None
    assert "driver" not in makers(replace(found, jobs=(replace(JOB, finished=True),)))
    assert "" not in makers(cluster(actor("x"), jobs=(RayJob("01000000"),)))
