"""Failures without a traceback: never success where something failed, and no failure where nothing did."""

from __future__ import annotations

import io

import pytest

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import headline

STARTED = "2026-11-20 10:00:00,100 INFO worker.py:1927 -- Started a local Ray instance.\n" * 3
STEP = "(TaskRunner pid=7) step:2 - actor/pg_loss:0.01 - critic/score/mean:0.25\n"
DONE = f"{STEP}(TaskRunner pid=7) 'Final validation metrics: None'\n"


def answered(text: str) -> Answer:
    found = excerpt(io.BytesIO(text.encode()).read)
    return Answer(read(found.lines, "run.log"), ("run.log",), found.size)


@pytest.mark.parametrize(
    "words",
    [
        "make: *** [train] Error 1",
        "Job 'raysubmit_1' failed",
        '{"level":"error","msg":"it broke","ts":1}',
        "Process completed with exit code 1.",
        "ERROR: Job failed: exit code 1",
        "##[error]Process completed with exit code 2.",
        "Finished: FAILURE",
        "State: FAILED",
        "Traceback (most recent call last):",
        "Killed",
        "+ exit 1",
        "launch: fatal: both options were given",
        "10:00:01 [ERROR] the launcher gave up",
        "2026-11-20 10:00:01,100 - __main__ - ERROR - the launcher gave up",
        "2026-11-20T10:00:01Z watchdog ERROR the launcher gave up",
        "11/20/2026 10:00:01 - ERROR - launcher.main - it gave up",
        "[ERROR|trainer.py:12] 2026-11-20 10:00:01,100 >> it gave up",
    ],
)
def test_failure_message_is_never_success(words: str) -> None:
    answer = answered(f"{STARTED}{words}\n")
    assert (headline(answer)[0], answer.verdict, answer.exit_code) == ("NOT DETERMINED", "not_determined", 3)
    assert answer.reading.error is not None


@pytest.mark.parametrize(
    "words",
    [
        "fine",
        "exit code 0",
        "State: COMPLETED (exit code 0)",
        "Finished: SUCCESS",
        "INFO 0 errors",
        "WARNING: the judge failed, retrying",
        '{"level":"info","msg":"fine"}',
        "Loaded dataset error_analysis.parquet",
        "wandb: Syncing run failed-attempt-3",
        "2026-11-20 10:00:01,100 no ERROR in any of 12 files",
        "2026-11-20 10:00:01,100 - __main__ - INFO - ERROR lines: none",
    ],
)
def test_clean_log_is_ok(words: str) -> None:
    answer = answered(f"{STARTED}{words}\n")
    assert (headline(answer)[0], answer.verdict, answer.exit_code) == ("OK", "ok", 0)


def test_error_before_further_steps_is_not_a_failure() -> None:
    late = "(raylet) ERROR 11-20 10:00:00 [x.py:1] something odd\n"
    assert answered(f"{STARTED}{late}{STEP}").exit_code == 0
    assert answered(f"{STARTED}{STEP}{late}").exit_code == 3
    assert answered(f"{STARTED}{DONE}{late}").exit_code == 0
    assert answered(f"{STARTED}{DONE}Job 'raysubmit_1' failed\n").exit_code == 3


def test_unlabelled_workers_belong_to_the_run_that_ended() -> None:
    killed = "(WorkerDict pid=512) RuntimeError: DataLoader worker (pid 912) is killed by signal: Killed.\n"
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
    assert answered(f"{DONE}{killed}{died}").exit_code == 0
    assert answered(f"{STEP}{killed}{died}").exit_code == 1
