from __future__ import annotations

from verl_doctor.toolkit.fact_ray_clusters import RayCluster
from verl_doctor.toolkit.ray_state import RayActor, RayGroup, RayNode
from verl_doctor.toolkit.rehearsal_waits import waiting

NODE = RayNode("n", "127.0.0.1", resources={"CPU": 2.0, "memory": 9e9}, free={"CPU": 0.0})


def unit(number: int, state: str = "PENDING_CREATION") -> RayActor:
    return RayActor(f"a{number}", state, class_name="SimpleStorageUnit", needs={"CPU": 1.0})


def test_actors_without_a_place_are_counted_beside_what_ray_has() -> None:
    cluster = RayCluster("127.0.0.1:1", nodes=(NODE,), actors=(unit(1), unit(2), unit(3, "ALIVE")))
    assert waiting(cluster) == "Ray cannot start 2 x SimpleStorageUnit (1 CPU): it has 2 CPU, free are 0 CPU"


def test_a_group_without_a_place_is_named_with_its_parts() -> None:
    group = RayGroup("g", "PENDING", bundles=({"CPU": 3.0, "GPU": 1.0},))
    assert "placement group of 3 CPU and 1 GPU" in waiting(
        RayCluster("127.0.0.1:1", nodes=(NODE,), groups=(group,))
    )


def test_nothing_waits_where_all_run() -> None:
    cluster = RayCluster("127.0.0.1:1", nodes=(NODE,), actors=(unit(1, "ALIVE"), unit(2, "DEAD")))
    assert waiting(cluster) == ""
