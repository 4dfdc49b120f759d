"""A cancelled run: it did not finish, and no fault is named."""

from __future__ import annotations

import io

import pytest
from support.logs.builder import DRIVER_SAW_IT, spoken, traceback

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.diagnosis import Reading, read, together
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import headline

RUNNER = "(TaskRunner pid=7131) "
STEP = f"{RUNNER}step:1 - actor/loss:0.1 - timing_s/step:9.5\n"
DONE = f"{STEP}{RUNNER}Final validation metrics: None\n"
SLURM = "slurmstepd: error: *** JOB 4242 ON node7 CANCELLED AT 2026-11-20T10:00:00"
AGENT = "torch/distributed/elastic/agent/server/api.py"
ENDS = [
    f"{SLURM} ***",
    "*** SIGTERM received at time=1726300000 on cpu 3 ***",
    "SIGTERM received at time=1726300000 on cpu 3",
    f"W1120 10:00:00.123000 4711 {AGENT}:739] Received Signals.SIGTERM death signal, shutting down workers",
    f"W1120 10:00:00.123000 4711 {AGENT}:739] Received 15 death signal, shutting down workers",
    "srun: error: node-7: task 0: Terminated",
    "command terminated with exit code 143",
    "Terminated",
]


def judged(text: str) -> Reading:
    return read(excerpt(io.BytesIO(text.encode()).read).lines, "run.log")


LIMITS = [
    (
        f"WARNING:torch.distributed.{AGENT}:Received Signals.SIGHUP death signal, shutting down workers",
        "LOG254",
    ),
    (f"{SLURM} DUE TO TIME LIMIT ***", "LOG250"),
    ("=>> PBS: job killed: walltime 3644 exceeded limit 3600", "LOG250"),
    (f"{SLURM} DUE TO PREEMPTION ***", "LOG251"),
    ("  Normal  TaintManagerEviction  3m  controller  Marking for deletion Pod rl/head-0", "LOG253"),
]


@pytest.mark.parametrize(("message", "code"), LIMITS)
def test_limit_that_ended_the_run_is_its_cause(message: str, code: str) -> None:
    (cause,) = judged(f"{STEP}{message}\n").causes
    assert cause.signature is not None
    assert (cause.signature.code, cause.number) == (code, 2)
    assert "resume_mode=auto" in cause.signature.remedy


@pytest.mark.parametrize("message", ENDS)
def test_cause_of_a_stopped_run_is_reported_with_its_line(message: str) -> None:
    reading = judged(f"{STEP}{message}\n")
    answer = Answer(reading, ("run.log",), 100)
    assert reading.error is not None
    assert (reading.error.number, reading.error.lines) == (2, (message,))
    assert (answer.verdict, answer.exit_code) == ("not_determined", 3)
    assert headline(answer)[1].startswith("a user or a batch system ended the run")


@pytest.mark.parametrize("message", [*ENDS, *(message for message, _ in LIMITS)])
def test_run_that_finished_or_continued_was_not_ended(message: str) -> None:
    for log in (f"{DONE}{message}\n", f"{message}\n{STEP}{STEP}{STEP}"):
        assert Answer(judged(log), ("run.log",), 100).exit_code == 0, log


def test_fault_logged_before_the_end_remains_the_first_cause() -> None:
    disk = "OSError: [Errno 28] No space left on device"
    for fault in (f"{disk}\n", spoken(traceback(disk), RUNNER)):
        (cause,) = judged(f"{STEP}{fault}{ENDS[0]}\n").causes
        assert cause.signature is not None
        assert cause.signature.code == "HOST106"
    late = judged(f"{STEP}{ENDS[0]}\nwrite failed: No space left on device\n")
    assert (late.causes, late.error and late.error.number) == ((), 2)


def test_crash_before_a_stop_message_is_not_explained_by_it() -> None:
    first = judged(f"{ENDS[0]}\n{DRIVER_SAW_IT}").error
    assert first is not None
    assert first.kind == "ended"
    died = judged(f"{DRIVER_SAW_IT}{ENDS[0]}\n").error
    assert died is not None
    assert died.kind == "consequence"


@pytest.mark.parametrize(
    "message",
    ["INFO the episode was Terminated", "sandbox: process exited with code 1", "answers: CANCELLED"],
)
def test_stop_words_inside_other_text_are_ignored(message: str) -> None:
    error = judged(f"{STEP}{message}\n").error
    assert error is None or error.kind == "consequence"


def test_workers_stopped_after_completion_did_not_end_the_run() -> None:
    worker = judged(f"{ENDS[1]}\n")
    assert together({"a": judged(STEP), "b": worker}).error is not None
    assert together({"a": judged(DONE), "b": worker}).error is None
