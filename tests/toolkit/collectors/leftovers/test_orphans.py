"""Orphaned processes in invented tables: what is a leftover, what is kept and why, and what is not reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from verl_doctor.toolkit.collectors.leftovers.orphans import YOUNG, Around, Orphans, orphans
from verl_doctor.toolkit.system.process_activity import Activity
from verl_doctor.toolkit.system.process_life import Sign
from verl_doctor.toolkit.system.process_table import Row
from verl_doctor.toolkit.system.process_ties import Tie

INIT = Row(1, 0, 1, "S", mine=False, command="/sbin/init splash")
TRAINER = "python3 -m verl.trainer.main_ppo trainer.nnodes=1"
SPAWNED = "/env/bin/python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"
TRACKER = "/env/bin/python3 -B -c from multiprocessing.resource_tracker import main;main(22)"


IDLE = Activity()
NOTHING = Around(
    ties=lambda pids: {pid: set() for pid in pids},
    age=lambda _: 2 * YOUNG,
    session=lambda _: False,
    debugger=lambda _: 0,
    elsewhere=lambda _: "",
    foreign=lambda _: "",
    abandoned=lambda _: True,
    life=lambda _: (),
    activity=lambda pids: dict.fromkeys(pids, IDLE),
    rendezvous=lambda _: (),
)


def row(pid: int, parent: int, command: str, *, mine: bool = True, state: str = "S") -> Row:
    """A process of a job."""
    return Row(pid, parent, 1000 + pid, state, mine, command)


def judged(
    *table: Row,
    ties: Mapping[int, set[Tie]] | None = None,
    age: float = 2 * YOUNG,
    session: bool | None = False,
    debugger: int = 0,
    elsewhere: str = "",
    foreign: Mapping[int, str] | None = None,
    engines: tuple[int, ...] = (),
    abandoned: bool = True,
    life: tuple[Sign, ...] = (),
    activity: Activity = IDLE,
    rendezvous: bool = False,
) -> Orphans:
    """The judgement over a table, with answers of one kind for all."""
    given = ties or {}
    foreigners = foreign or {}

    def is_foreign(one: Row) -> str:
        return foreigners.get(one.pid, "") or (
            "" if one.pid in engines or "::" in one.command or "ray" in one.command else "no code"
        )

    return orphans(
        (INIT, *table),
        Around(
            ties=lambda pids: {pid: given.get(pid, set()) for pid in pids},
            age=lambda _: age,
            session=lambda _: session,
            debugger=lambda _: debugger,
            elsewhere=lambda _: elsewhere,
            foreign=is_foreign,
            abandoned=lambda _: abandoned,
            life=lambda _: life,
            activity=lambda pids: dict.fromkeys(pids, activity),
            rendezvous=lambda pids: pids if rendezvous else (),
        ),
    )


def left(found: Orphans) -> list[int]:
    """The numbers of those that may go."""
    return [one.pid for one, _ in found.left]


def kept(found: Orphans) -> dict[int, str]:
    """Why the others stay, by number."""
    return {one.pid: why for one, why in found.kept}


def test_engine_with_a_killed_trainer_is_a_leftover_with_its_helpers() -> None:
    found = judged(
        row(20, 1, TRACKER),
        row(21, 1, "VLLM::EngineCore"),
        row(22, 21, "VLLM::Worker_TP0"),
        row(23, 22, SPAWNED),
        ties={21: {Tie(20, "a pipe"), Tie(22, "a pipe")}, 22: {Tie(21, "a pipe"), Tie(20, "a pipe")}},
    )
    assert left(found) == [21, 22, 20, 23]  # parents first, and the tracker after all that have names
    assert found.left[0][1] == "the process that started it has ended, and init (process 1) adopted it"
    assert found.left[1][1] == "its parent, VLLM::EngineCore (process 21), is also left over"
    assert not found.kept


@pytest.mark.parametrize(
    "table",
    [
        pytest.param([row(20, 1, TRAINER), row(21, 20, "VLLM::EngineCore")], id="a trainer started with nohup or setsid"),
        pytest.param([row(20, 1, "ray::vLLMHttpServer"), row(19, 1, "raylet"), row(21, 20, "VLLM::EngineCore")][1:], id="its parent has just gone, and is not seen any more"),
        pytest.param([row(19, 1, "/env/ray/raylet/raylet --a=b"), row(20, 19, "ray::vLLMHttpServer"), row(21, 20, "VLLM::EngineCore")], id="below a raylet"),
        pytest.param([row(20, 1, "/usr/bin/python3 /usr/bin/vllm serve m"), row(21, 20, "VLLM::EngineCore")], id="a server that was daemonised"),
        pytest.param([row(21, 1, "VLLM::EngineCore", mine=False)], id="another user's"),
        pytest.param([row(21, 1, "VLLM::EngineCore", state="Z")], id="a zombie"),
        pytest.param([row(20, 1, TRAINER)], id="a trainer alone"),
        pytest.param([row(20, 1, "vim VLLM::EngineCore")], id="a name among the arguments"),
        pytest.param([row(20, 1, TRACKER), row(21, 1, SPAWNED)], id="anybody's children of multiprocessing"),
    ],
)  # fmt: skip
def test_processes_with_a_possible_owner_are_not_leftovers(table: list[Row]) -> None:
    assert left(judged(*table)) == []


@pytest.mark.parametrize("title", ["my-trainer --fast", "tmux: server", "bash run.sh", "(sd-pam)"])
def test_parent_that_does_not_adopt_is_the_owner(title: str) -> None:
    assert judged(row(20, 1, title), row(21, 20, "VLLM::EngineCore")) == Orphans()


@pytest.mark.parametrize(
    "title",
    ["/usr/lib/systemd/systemd --user", "slurmstepd: [77.0]", "/usr/bin/containerd-shim-runc-v2 -id x"],
)
def test_adopted_process_is_a_leftover(title: str) -> None:
    assert left(judged(row(20, 1, title), row(21, 20, "VLLM::EngineCore"))) == [21]


def test_job_may_be_the_first_process_of_a_container() -> None:
    job = Row(1, 0, 1, "S", mine=True, command=TRAINER)
    engine, agent = row(21, 1, "VLLM::EngineCore"), row(30, 1, "VLLM::EngineCore")
    found = judged(job, engine, agent, ties={21: {Tie(1, "a pipe")}})
    assert left(found) == [30]  # that one has no pipe to it, as each child of multiprocessing has
    assert kept(found) == {}


def test_process_numbers_reused_during_the_scan_are_ignored() -> None:
    assert left(judged(row(21, 22, "VLLM::EngineCore"), row(22, 21, "VLLM::Worker"))) == []


def test_first_process_is_not_an_orphan() -> None:
    assert judged(row(1, 0, "VLLM::EngineCore")) == Orphans()


@pytest.mark.parametrize(
    ("tie", "why"),
    [
        (Tie(9, "a pipe"), "it has a pipe with python3 (process 9), which is running"),
        (Tie(9, "shared memory"), "it has shared memory with python3 (process 9), which is running"),
        (Tie(9, "a pipe", standard=True), "it has a pipe with python3 (process 9), which is running"),
        (Tie(0, "a connection with 192.0.2.9:6379"), "it has a connection with 192.0.2.9:6379 whose other end is not visible here"),
        (Tie(77, "a pipe"), "it has a pipe whose other end is not visible here"),
    ],
)  # fmt: skip
def test_process_connected_to_another_is_kept(tie: Tie, why: str) -> None:
    found = judged(row(9, 1, "python3 own.py"), row(21, 1, "VLLM::EngineCore"), ties={21: {tie}})
    assert left(found) == []
    assert kept(found) == {21: why}


@pytest.mark.parametrize("other", [0, 9])
def test_process_connected_only_to_a_log_writer_is_a_leftover(other: int) -> None:
    found = judged(
        row(9, 1, "tee run.log"),
        row(21, 1, "VLLM::EngineCore"),
        ties={21: {Tie(other, "a pipe", standard=True)}},
    )
    assert left(found) == [21]


def test_connected_processes_are_kept_together() -> None:
    found = judged(
        row(9, 1, "python3 client.py"),
        row(21, 1, "VLLM::EngineCore"),
        row(22, 21, "VLLM::Worker"),
        row(23, 1, "VLLM::EngineCore"),
        row(30, 1, "VLLM::EngineCore"),
        ties={22: {Tie(9, "a connection")}, 23: {Tie(22, "a pipe")}},
    )
    assert left(found) == [30]
    assert kept(found) == {
        21: "its child, process 22, is kept",
        22: "it has a connection with python3 (process 9), which is running",
        23: "it is connected to process 22, which is kept",
    }


@pytest.mark.parametrize(
    ("table", "answers", "why"),
    [
        ([row(21, 1, "VLLM::EngineCore")], {"age": YOUNG / 2}, "it started less than a minute ago"),
        ([row(21, 1, "VLLM::EngineCore")], {"debugger": 5}, "process 5 examines it with a debugger"),
        ([row(21, 1, "VLLM::EngineCore")], {"elsewhere": "it runs in another container; run verl-doctor there"}, "it runs in another container; run verl-doctor there"),
        ([row(21, 0, "VLLM::EngineCore")], {}, "its parent is not visible here: it was started from outside this container, or /proc hides it"),
        ([row(21, 1, "ray::WorkerDict"), row(22, 21, "bash -c train")], {}, "its child bash (process 22) is not a known helper of a job"),
        ([row(21, 1, "ray::DashboardAgent")], {"session": None}, "it cannot be determined to which Ray it belongs"),
        ([row(21, 1, SPAWNED)], {"engines": (21,), "age": 1.0}, "it started less than a minute ago"),
        ([row(21, 1, "X::Worker")], {"foreign": {21: "its title proves nothing"}}, "its title proves nothing"),
        ([row(21, 1, "VLLM::EngineCore")], {"abandoned": False}, "nothing shows that its job has ended"),
        ([row(21, 1, "VLLM::EngineCore")], {"life": (Sign("listens at [::]:8000", "TCP listener"),)}, "it listens at [::]:8000"),
        ([row(21, 1, "VLLM::EngineCore")], {"life": (Sign("holds a lock"),), "rendezvous": True}, "it holds a lock"),
        ([row(21, 1, "VLLM::EngineCore")], {"activity": Activity(0.001)}, "it used 1 ms of a processor while it was watched"),
        ([row(21, 1, "VLLM::EngineCore")], {"activity": Activity(0.5), "rendezvous": True}, "it used 500 ms of a processor while it was watched"),
        ([row(21, 1, "VLLM::EngineCore")], {"activity": Activity(transfers=True)}, "it was reading or writing while it was watched"),
        ([row(21, 1, "VLLM::EngineCore")], {"activity": Activity(threads=True)}, "it started or ended threads while it was watched"),
        ([row(21, 1, "VLLM::EngineCore")], {"activity": Activity(hidden=True)}, "its activity may not be examined"),
    ],
)  # fmt: skip
def test_doubtful_process_is_kept(table: list[Row], answers: dict[str, object], why: str) -> None:
    found = judged(*table, **answers)  # type: ignore[arg-type]
    assert left(found) == []
    assert kept(found) == {21: why}


def test_torch_rendezvous_may_listen_and_be_active() -> None:
    signs = (Sign("listens at 127.0.0.1:4711", "TCP listener"),)
    table = row(21, 1, "VLLM::EngineCore")
    assert left(judged(table, life=signs, activity=Activity(0.001), rendezvous=True)) == [21]
    assert left(judged(table, life=signs, activity=Activity(0.001))) == []


def test_children_of_an_abandoned_process_are_abandoned() -> None:
    found = orphans(
        (INIT, row(21, 1, "VLLM::EngineCore"), row(22, 21, "VLLM::Worker"), row(30, 1, "VLLM::EngineCore")),
        replace(NOTHING, abandoned=lambda one: one.pid == 21),
    )
    assert left(found) == [21, 22]
    assert kept(found) == {30: "nothing shows that its job has ended"}


def test_daemons_of_a_running_ray_are_not_reported() -> None:
    daemons = [
        row(20 + n, 1, title) for n, title in enumerate(("ray::DashboardAgent", "ray-dashboard", "ray::IDLE"))
    ]
    assert judged(*daemons, row(30, 22, "VLLM::EngineCore"), session=True) == Orphans()
    assert left(judged(*daemons, session=False)) == [20, 21, 22]


def test_worker_started_through_another_program_has_an_owner() -> None:
    table = (
        row(18, 1, "/env/ray/raylet/raylet"),
        row(19, 18, "uv run python x"),
        row(20, 19, "ray::WorkerDict"),
    )
    assert judged(*table, row(21, 20, "VLLM::EngineCore"), session=True) == Orphans()


@pytest.mark.parametrize(
    "title",
    [
        "VLLM::APIServer_0",
        "VLLM::APIServer",
        "rollout::APIServer_DP1",
        "sglang::http_server/tokenizer_manager",
    ],
)
def test_server_that_any_process_may_call_is_kept(title: str) -> None:
    """SGLang's own server may even have been started by a person, with nohup."""
    table = row(20, 1, title), row(21, 20, "sglang::scheduler"), row(22, 1, "VLLM::EngineCore")
    found = judged(*table, ties={22: {Tie(20, "a connection")}})
    assert left(found) == []
    assert kept(found) == {
        22: f"it has a connection with {title.rpartition('/')[2]} (process 20), which is running"
    }


def test_engine_of_an_older_vllm_without_a_title_is_recognised() -> None:
    assert left(judged(row(21, 1, SPAWNED), row(22, 21, TRACKER), engines=(21,))) == [21, 22]
