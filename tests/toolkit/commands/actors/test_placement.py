"""`verl-doctor actors`: GPU processes joined with actors, and the rendering."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.running import inside
from support.schemas import validate

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.collectors.processes.raylets import Raylet, Raylets
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayJob, RayNode
from verl_doctor.toolkit.commands.actors.document import document, headline
from verl_doctor.toolkit.commands.actors.placement import Placement, placement
from verl_doctor.toolkit.commands.actors.render import markdown_lines, text_lines
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.facts import Absent, Unknown

HERE, THERE = "10.0.0.1", "10.0.0.2"
SESSION = "session_2026-11-21_10-00-00_000000_77"
JOB = RayJob("01000000", "train", HERE, 500, worker="driver")
NO_GPU = Absent("there is no NVIDIA GPU here")
NO_RAY = Absent("no Ray responds at any address known here")
RAYLETS = Raylets((Raylet(70, HERE, f"{HERE}:6379", SESSION, 60.0, Variables()),))


def rank(number: int, of: int = 2, **others: Any) -> RayActor:
    whole = RayActor(
        f"rank{number}",
        "ALIVE",
        f"abc123WorkerDict_0:{number}",
        "train",
        "create_colocated_worker_cls.<locals>.WorkerDict",
        job=JOB.job,
        node="n1",
        address=HERE,
        pid=1000 + number,
        owner="driver",
        worker=f"w{number}",
        gpus=(number,),
        variables={"RANK": str(number), "WORLD_SIZE": str(of)},
        roles=("actor_rollout_ref", "critic"),
    )
    return replace(whole, **others)


SERVER = RayActor(
    "server", "ALIVE", "vllm_server_0_0", "train", "vLLMHttpServer", job=JOB.job, node="n1", address=HERE, pid=1100
)  # fmt: skip


def cluster(*actors: RayActor, **others: Any) -> RayCluster:
    nodes = (RayNode("n1", HERE, resources={"GPU": 8.0}), RayNode("n2", THERE, resources={"GPU": 8.0}))
    return RayCluster(
        f"{HERE}:6379", **{"session": SESSION, "nodes": nodes, "jobs": (JOB,), "actors": actors, **others}
    )


def gpu(*holders: Holder) -> Gpus:
    return Gpus((Device(0, "NVIDIA H200", memory=Memory(143_771, 80_000, 63_771), holders=holders),))


def holder(pid: int, title: str, parent: int = 70, memory: int | None = 40_000) -> Holder:
    return Holder(pid, memory, "ray worker", title, mine=True, parent=parent)


def joined(
    gpus: Gpus | Unknown,
    *actors: RayActor,
    processes: Processes | Unknown = Processes(),  # noqa: B008 - frozen
    raylets: Raylets | Unknown = RAYLETS,
    **others: Any,
) -> Placement:
    return placement(RayClusters((cluster(*actors, **others),)), gpus, processes, raylets)


def shown(found: Placement, width: int | None = None, *, every: bool = False) -> str:
    return "\n".join(line.plain for line in text_lines(found, width, every=every))


def roles_on_gpu(found: Placement) -> list[str]:
    (device,) = document(found)["gpus"]["devices"]
    return [process["role"] for process in device["processes"]]


def test_trainer_and_engine_of_a_server_share_a_gpu() -> None:
    engine = Process(1101, 1100, "engine", "VLLM::EngineCore", mine=True, started=0.0)
    found = joined(
        gpu(holder(1000, "ray::WorkerDict"), holder(1102, "VLLM::Worker", parent=1101)),
        rank(0),
        rank(1),
        SERVER,
        processes=Processes((engine,)),
    )
    assert roles_on_gpu(found) == [
        "rank 0 of abc123WorkerDict (actor_rollout_ref + critic)",
        "VLLM::Worker of vllm_server_0_0 (vLLMHttpServer)",
    ]
    whole = shown(found)
    assert "GPU 0 NVIDIA H200: 78.1 GiB of 140 GiB in use" in whole
    assert "process 1000, 39.1 GiB: rank 0 of abc123WorkerDict" in whole
    assert whole.startswith("WHOLE  all 2 ranks of 1 worker group alive")
    assert "other actors: 1 vLLMHttpServer" in whole


def test_same_process_number_on_another_machine_is_not_the_actor() -> None:
    found = joined(gpu(holder(1000, "python")), rank(0, address=THERE))
    assert roles_on_gpu(found) == ["python"]


def test_process_of_another_local_ray_is_not_the_actor() -> None:
    found = joined(gpu(holder(1000, "python")), rank(0), session="session_of_another")
    assert roles_on_gpu(found) == ["python"]


def test_process_in_another_namespace_is_not_visible() -> None:
    """NVML may give the number that a process has on the host."""
    assert roles_on_gpu(joined(gpu(Holder(1000, 40_000)), rank(0))) == ["not visible from here"]


def test_circular_parents_end() -> None:
    pair = (Process(5, 6, "engine", "a", True, 0.0), Process(6, 5, "engine", "b", True, 0.0))
    found = joined(gpu(holder(7, "VLLM::Worker", parent=5)), processes=Processes(pair))
    assert roles_on_gpu(found) == ["VLLM::Worker"]


def test_process_of_an_ended_job_is_left_behind() -> None:
    over = replace(JOB, finished=True, ended=1.0)
    found = joined(gpu(holder(1000, "ray::WorkerDict")), rank(0, of=1, detached=True), jobs=(over,))
    whole = shown(found)
    assert whole.startswith("LEFT BEHIND  1 rank of finished jobs")
    assert "job 01000000, which has ended" in whole
    assert "detached: only their names refer to them" in whole
    assert "the GCS does not record who holds a handle" in whole


def test_dead_ranks_with_the_same_reason_are_reported_once() -> None:
    died = {"state": "DEAD", "died": "The actor died because its node has died."}
    found = joined(NO_GPU, *(rank(n, 16, **(died if n >= 8 else {})) for n in range(16)))
    whole = shown(found)
    assert whole.startswith("BROKEN  8 ranks of 1 worker group dead")
    assert whole.count("its node has died") == 1
    assert "ranks 8-15 dead: The actor died" in whole
    assert "16 ranks: 8 alive, 8 dead" in whole
    assert f"{HERE}: ranks 0-7 on GPUs 0-7" in whole


def test_pending_and_missing_ranks_are_waiting() -> None:
    found = joined(NO_GPU, rank(0, 4), rank(1, 4, state="PENDING_CREATION", node="", address="", pid=0))
    assert headline(found)[0] == "WAITING"
    assert "4 ranks: 1 alive, 1 waiting, 2 not created yet" in shown(found)


def test_pending_placement_group_is_waiting() -> None:
    pool = RayGroup(
        "pg", "PENDING", "poolverl_group_8:0", job=JOB.job, bundles=({"GPU": 1.0, "CPU": 3.0},) * 8
    )
    found = joined(NO_GPU, groups=(pool,))
    assert headline(found) == ("WAITING", "1 placement group not placed yet")
    assert "placement group poolverl_group_8:0, 8 times 1 GPU, 3 CPU" in shown(found)


def test_actors_of_ended_jobs_are_shown_only_on_request() -> None:
    over = replace(JOB, finished=True)
    found = joined(NO_GPU, rank(0, 1, state="DEAD"), replace(SERVER, detached=True), jobs=(over,))
    assert "abc123" not in shown(found)
    assert "abc123" in shown(found, every=True)


def test_actor_of_a_job_unknown_to_the_gcs() -> None:
    assert "job 01000000, which the GCS no longer lists" in shown(joined(NO_GPU, rank(0), jobs=()))


@pytest.mark.parametrize(
    ("gpus", "clusters", "word"),
    [
        (NO_GPU, NO_RAY, "NO ACTORS"),
        (Unknown("NVML hangs"), NO_RAY, "UNKNOWN"),
        (NO_GPU, Unknown("Ray is not installed there"), "UNKNOWN"),
        (Gpus(refused="Driver Not Loaded"), NO_RAY, "UNKNOWN"),
    ],
)
def test_no_ray_and_no_gpu_gives_one_line(gpus: Any, clusters: Any, word: str) -> None:
    lines = shown(placement(clusters, gpus, NO_RAY, NO_RAY)).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{word}  ")


def test_gpus_without_ray_and_ray_without_gpus() -> None:
    alone = placement(NO_RAY, gpu(holder(7, "python")), Processes(), Absent("no raylet"))
    assert shown(alone).splitlines()[1:] == [
        f"  Ray: {NO_RAY.reason}",
        "  GPU 0 NVIDIA H200: 78.1 GiB of 140 GiB in use",
        "    process 7, 39.1 GiB: python",
    ]
    assert f"  GPUs: {NO_GPU.reason}" in shown(joined(NO_GPU, rank(0)))


def test_refused_or_partly_read_cluster_is_reported() -> None:
    assert "could not be read: no token" in shown(joined(NO_GPU, refused="no token"))
    assert "; not read: actors" in shown(joined(NO_GPU, unread=("actors",)))


def many(nodes: int) -> Placement:
    actors = [
        rank(n, nodes * 8, actor=f"a{n}", address=f"10.1.{n // 8}.1", gpus=(n % 8,)) for n in range(nodes * 8)
    ]
    return joined(NO_GPU, *actors)


def test_number_of_lines_is_bounded_for_many_nodes() -> None:
    assert len(shown(many(40)).splitlines()) <= len(shown(many(9)).splitlines())
    assert "and on 32 more nodes (-v shows all)" in shown(many(40))
    assert "10.1.39.1: ranks 312-319 on GPUs 0-7" in shown(many(40), every=True)


EVERYTHING = joined(
    gpu(holder(1000, "ray::WorkerDict"), Holder(9, None)),
    rank(0),
    rank(1, state="DEAD", died="\x1b[2JThe actor is dead because its worker process has died. " * 4),
    SERVER,
    groups=(RayGroup("pg", "PENDING", job=JOB.job, bundles=({"GPU": 1.0},)),),
)


def test_lines_fit_the_terminal_and_escapes_are_neutralised() -> None:
    assert max(map(len, shown(EVERYTHING, 80).splitlines())) <= 80
    assert "\x1b" not in shown(EVERYTHING)
    assert "\x1b" not in "\n".join(markdown_lines(EVERYTHING, every=True))


@pytest.mark.parametrize(
    "found", [EVERYTHING, many(2), placement(NO_RAY, NO_GPU, NO_RAY, NO_RAY)], ids=["all", "many", "none"]
)
def test_document_matches_its_schema(found: Placement) -> None:
    validate(json.loads(json.dumps(document(found))), schema_text("actors"))


def test_command_prints_the_placement(tmp_path, monkeypatch, capfd) -> None:
    """Works on any machine, in the requested format."""
    done = inside("actors", "--format", "json", cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    validate(json.loads(done.stdout), schema_text("actors"))
