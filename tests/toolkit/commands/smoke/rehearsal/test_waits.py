from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayNode
from verl_doctor.toolkit.commands.smoke.rehearsal import waits
from verl_doctor.toolkit.commands.smoke.rehearsal.waits import died, waiting, waits_in
from verl_doctor.toolkit.machine import Machine

NODE = RayNode("n", "127.0.0.1", resources={"CPU": 2.0, "memory": 9e9}, free={"CPU": 0.0})


def unit(number: int, state: str = "PENDING_CREATION") -> RayActor:
    return RayActor(f"a{number}", state, class_name="SimpleStorageUnit", needs={"CPU": 1.0})


def test_unplaced_actors_are_counted_with_the_available_resources() -> None:
    cluster = RayCluster("127.0.0.1:1", nodes=(NODE,), actors=(unit(1), unit(2), unit(3, "ALIVE")))
    assert waiting(cluster) == "Ray cannot start 2 x SimpleStorageUnit (1 CPU): it has 2 CPU, free are 0 CPU"


def test_unplaced_group_is_named_with_its_parts() -> None:
    group = RayGroup("g", "PENDING", bundles=({"CPU": 3.0, "GPU": 1.0},))
    assert "placement group of 3 CPU and 1 GPU" in waiting(
        RayCluster("127.0.0.1:1", nodes=(NODE,), groups=(group,))
    )


def test_control_store_belongs_to_the_raylet_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, session in ((7, "/tmp/other"), (8, "/tmp/vd-1")):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        command = f"raylet\0--session-dir={session}/ray/session_1\0--gcs-address=10.0.0.{pid}:6379\0"
        (tmp_path / "proc" / str(pid) / "cmdline").write_text(command)
    queries = []
    monkeypatch.setattr(
        waits, "read_cluster", lambda *given: queries.append(given[2]) or RayCluster(given[2])
    )
    assert waits_in(Machine(root=tmp_path), "python3", Path("/tmp/vd-1")) is None
    assert waits_in(Machine(root=tmp_path), "python3", Path("/tmp/gone")) is None
    assert queries == ["10.0.0.8:6379"]


def test_running_actors_are_not_waiting() -> None:
    cluster = RayCluster("127.0.0.1:1", nodes=(NODE,), actors=(unit(1, "ALIVE"), unit(2, "DEAD")))
    assert waiting(cluster) == ""


KILLED = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
LEFT = "The actor is dead because its worker process has died. Worker exit type: INTENDED_USER_EXIT"


@pytest.mark.parametrize(
    ("end", "why", "logged"),
    [
        ("WORKER_DIED", KILLED, True),
        ("OUT_OF_MEMORY", "", True),
        ("RAY_KILL", "", False),
        ("WORKER_DIED", LEFT, False),
    ],
)
def test_unexpectedly_ended_actor_has_died(end: str, why: str, logged: bool) -> None:
    dead = RayActor("a", "DEAD", class_name="WorkerDict", pid=12, died=why, end=end)
    reason = died(RayCluster("127.0.0.1:1", nodes=(NODE,), actors=(unit(1, "ALIVE"), dead)))
    assert reason.startswith("a process of the job failed: WorkerDict (process 12) has died: ") is logged
    assert bool(reason) is logged
