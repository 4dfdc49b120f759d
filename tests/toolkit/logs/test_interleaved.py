"""Logs of several processes that write into each other's lines, and messages that were cut off."""

from __future__ import annotations

import pytest
from support.logs.builder import traceback

from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.python_errors import raised_in

BAR = "  3%|3         | 24/777 [01:08<1:22:56,  2.88s/it]"
WATCHDOG = (
    "[rank5]:[E602 11:17:52.185053341 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operati"
)
VENV = "/venv/lib/python3.12/site-packages"


def texts(line: str) -> list[tuple[str, str, str]]:
    """Process, level and text of each part of a line."""
    return [(part.process, part.level, part.text) for part in log_lines(line)]


@pytest.mark.parametrize("month", ["E602", "E1120"])
def test_header_of_torch_is_read_in_every_month(month: str) -> None:
    (part,) = texts(f"[rank1]:[{month} 10:00:00.123 ProcessGroupNCCL.cpp:616] [Rank 1] it hangs")
    assert part == ("rank1", "ERROR", "[Rank 1] it hangs")


def test_line_behind_a_progress_bar_is_a_line_of_its_own() -> None:
    bar, behind = texts(f"{BAR}{WATCHDOG}")
    assert bar == ("", "", BAR)
    assert behind[:2] == ("rank5", "ERROR")
    assert texts(f"{BAR} loss 0.2") == [("", "", f"{BAR} loss 0.2")]


def test_only_complaint_behind_a_progress_bar_is_a_failure() -> None:
    error = read(list(log_lines(f"{{'loss': 3.5}}\n{BAR}{WATCHDOG}\n")), "run.log").error
    assert error is not None
    assert error.kind == "consequence"


def test_consequence_alone_is_the_answer_with_where_to_look() -> None:
    log = "[rank3]:[E419 10:42:28.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n"
    error = read(list(log_lines(log)), "run.log").error
    assert error is not None
    assert error.signature is not None
    assert error.signature.remedy.startswith("find the rank that did not arrive")


def test_failed_operation_of_nccl_is_no_success() -> None:
    log = "node7:40:48 [0] proxy.cc:1040 NCCL WARN [Proxy Service 8] Failed to execute operation Connect from rank 8, retcode 2\n"
    error = read(list(log_lines(f"{log}node7:40:48 [0] NCCL INFO proxy.cc:914 -> 2\n{log}")), "run.log").error
    assert error is not None
    assert error.kind == "consequence"


def test_exception_of_a_task_without_its_traceback_is_not_blamed_on_ray() -> None:
    log = traceback(
        "ray.exceptions.RayTaskError(AttributeError): ray::TrainActor.connect() (pid=40, ip=10.0.0.1, actor_id=43, repr=<tr",
        place=f"{VENV}/ray/_private/worker.py",
    )
    reading = read(list(log_lines(log)), "run.log")
    assert reading.first is None
    assert reading.error is not None
    assert reading.error.kind == "consequence"


def test_exception_that_two_processes_printed_at_once_is_read() -> None:
    log = "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyErrorKeyError: : 'prompt''prompt'\n"
    (raised,) = raised_in(log_lines(log))
    assert (raised.name, raised.message) == ("KeyError", "'prompt'")


def test_last_words_of_a_tracker_do_not_belong_to_a_message() -> None:
    log = "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'prompt'\nwandb: View run at x\n"
    (raised,) = raised_in(log_lines(log))
    assert raised.message == "'prompt'"
