"""The lines are those that verl 0.9.1 and Ray 2.60 wrote when each of this was done to them."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.commands.smoke.child import End
from verl_doctor.toolkit.commands.smoke.rehearsal.watch import Watcher

BEGIN = "[validate_config] All configuration checks passed successfully!\nray init kwargs: {'num_cpus': 32}\n"
STARTED = "2026-11-21 21:50:50,130\tINFO worker.py:2029 -- Started a local Ray instance. View the dashboard at http://127.0.0.1:8265 \n"
DRIVER = "\x1b[36m(TaskRunnerV1 pid=24926)\x1b[0m INFO:2026-11-21 21:51:39,243:Total training steps: 1\n"
NO_NODE = (
    "(autoscaler +38s) Error: No available node types can fulfill resource request {'CPU': 3.0, 'cpu': 1.0}. "
    "Add suitable node types to this cluster to resolve this issue.\n"
)
DEAD = (
    "(vLLMHttpServer pid=2) (VllmWorker-0 pid=9) ERROR multiproc_executor.py WorkerProc hit an exception.\n"
    "(vLLMHttpServer pid=2) (VllmWorker-0 pid=9) ERROR multiproc_executor.py Traceback (most recent call last):\n"
    "(vLLMHttpServer pid=2) AttributeError: 'Parameter' object has no attribute 'weight_loader'\n"
)


class Run:
    """A log that grows, and a clock."""

    def __init__(self, waits: str = "") -> None:
        self.now, self.text, self.waits, self.wanted = 0.0, "", waits, 0.0
        self.watcher = Watcher(
            lambda: End("no room", self.waits) if self.waits else None,
            lambda _: {1: self.wanted, 2: 0.1 * self.now},
            lambda: self.now,
        )

    def after(self, seconds: float, more: str = "") -> str | None:
        self.now += seconds
        self.text += more
        end = self.watcher(self.text)
        return end.sentence if end else None


def test_parts_are_reported_with_their_seconds() -> None:
    run = Run()
    assert [run.after(10, BEGIN), run.after(20, STARTED), run.after(12, DRIVER)] == [None, None, None]
    assert [(step.name, step.seconds) for step in run.watcher.steps()] == [
        ("imports", 10),
        ("Ray", 32),
        ("data", 0),
    ]
    assert run.watcher.part == "workers"


def test_partial_line_is_read_once_complete() -> None:
    run = Run()
    run.after(1, BEGIN[:-20])
    run.after(1, BEGIN[-20:])
    assert [step.name for step in run.watcher.steps()] == ["imports"]


def test_unsatisfiable_ray_request_ends_the_run_once_repeated() -> None:
    run = Run()
    assert run.after(60, BEGIN + NO_NODE) is None
    reason = run.after(35, NO_NODE)
    assert reason == "Ray has no node with {'CPU': 3.0, 'cpu': 1.0}, and waits for one without end"


def test_silence_after_a_failure_ends_the_run() -> None:
    run = Run()
    assert [run.after(60, BEGIN + DRIVER + DEAD), run.after(40)] == [None, None]
    assert "the trainer waits for it" in str(run.after(10))


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):\n(RewardLoopWorker pid=5) KeyError: 'judge'",
        "[reward] nobody died, exit code 0, EngineDeadError",
    ],
)
def test_error_printed_by_a_reward_is_not_a_death(line: str) -> None:
    run = Run()
    line = f"(RewardLoopWorker pid=5) {line}\n"
    assert [run.after(60, BEGIN + DRIVER + line), run.after(80), run.after(5, "step:1 - ok\n")] == [None] * 3


def test_process_that_keeps_logging_after_a_failure_is_left_alone() -> None:
    run = Run()
    run.after(60, DEAD)
    assert [run.after(40, f"retry {number}\n") for number in range(5)] == [None] * 5


def test_silence_ends_the_run_if_ray_cannot_start_an_actor() -> None:
    run = Run(waits="Ray cannot start 8 x SimpleStorageUnit (1 CPU): it has 2 CPU, free are 0 CPU")
    assert run.after(80, BEGIN) is None
    assert run.after(50) is None
    assert str(run.after(20)).endswith("free are 0 CPU")


def test_busy_process_is_queried_again() -> None:
    run = Run()
    assert [run.after(10, BEGIN), run.after(70)] == [None, None]
    run.waits = "Ray cannot start it"
    assert run.after(30) is None
    assert "Ray cannot start it" in str(run.after(40))


def test_silence_continues_if_ray_has_started_everything() -> None:
    run = Run()
    assert [run.after(100, BEGIN), run.after(100), run.after(100)] == [None, None, None]


def test_busy_worker_is_left_alone_and_an_idle_one_ends_the_run() -> None:
    run = Run(waits="Ray cannot start it")
    assert run.after(60, BEGIN + DEAD) is None
    for _ in range(100):
        run.wanted += 0.9
        run.watcher.look([(7, 1)])
        assert run.after(1) is None
    for _ in range(100):
        run.watcher.look([(7, 1)])
        if reason := run.after(1):
            break
    assert "the trainer waits for it" in str(reason)


def test_unreachable_cluster_ends_the_run_early() -> None:
    run = Run()
    line = "[2026-11-21] gcs_rpc_client.h:151: Failed to connect to GCS at address 10.0.0.9:6379 within 5 seconds.\n"
    assert run.after(20, BEGIN + line) == "the Ray cluster that it tried to join does not respond"
