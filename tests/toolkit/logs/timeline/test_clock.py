"""The times of lines: the clocks of many loggers and collectors, and words that look like one."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs.timeline.clock import Clock

HOUR = 3600
DAY = 24 * HOUR
NOVEMBER_21 = (304 + 20) * DAY
TEN = NOVEMBER_21 + 10 * HOUR


@pytest.mark.parametrize(
    ("labels", "seconds"),
    [
        ("INFO 11-21 10:00:07 [core.py:1] ", TEN + 7),
        ("(WorkerDict pid=3) WARNING 11-21 10:00:07 [a.py:1] ", TEN + 7),
        ("2026-11-21 10:00:07,250\tINFO worker.py:1 -- ", TEN + 7.25),
        ("INFO:2026-11-21 10:00:07,250:", TEN + 7.25),
        ("[2026-11-21 10:00:07,250][verl][INFO] - ", TEN + 7.25),
        ("[2026-11-21 10:00:07,250 I 12 12] ", TEN + 7.25),
        ("2026-11-21T10:00:07.250000000Z stderr F ", TEN + 7.25),
        ("2026/11/21 10:00:07 ", TEN + 7),
        ("[W1121 10:00:07.250000000 socket.cpp:1] ", TEN + 7.25),
        ("[rank3]:[W1121 10:00:07.250000000 socket.cpp:1] ", TEN + 7.25),
        ("Nov 21 10:00:07 node1 slurm[12]: ", TEN + 7),
        ("[10:00:07] ", 10 * HOUR + 7),
        ("2026-11-21 10:00:07 | n1 | INFO 07-02 03:00:00 [a.py:1] ", TEN + 7),
        ("INFO 99-21 10:00:07 [a.py:1] ", None),
        ("INFO 11-00 10:00:07 [a.py:1] ", None),
        ("INFO 11-21 24:00:07 [a.py:1] ", None),
        ("Xyz 21 10:00:07 node1 ", None),
        ("(WorkerDict pid=3) ", None),
        ("[00:29<00:00, 29.47s/it] ", None),
        ("", None),
    ],
)
def test_logger_clocks_are_read(labels: str, seconds: float | None) -> None:
    assert Clock().read(labels) == seconds


def test_time_inside_a_message_is_not_its_timestamp() -> None:
    words = "the checkpoint of step 200 was written by another job on 2025-01-01 00:00:00"
    assert Clock().read("(TaskRunner pid=1) ", words) is None


def test_clock_passes_midnight_and_new_year() -> None:
    clock = Clock()
    evening = clock.read("INFO 12-31 23:00:00 [a.py:1] ")
    morning = clock.read("INFO 01-01 01:00:00 [a.py:1] ")
    later = clock.read("[03:00:00] ")
    assert evening is not None
    assert (morning, later) == (evening + 2 * HOUR, evening + 4 * HOUR)
    assert clock.read("INFO 12-31 22:00:00 [a.py:1] ") == evening - HOUR  # a line that came late


def test_elapsed_seconds_are_used_if_the_first_line_has_them() -> None:
    clock = Clock()
    assert clock.split_elapsed("   0.00 + python3 x.py") == (0.0, "+ python3 x.py")
    assert clock.split_elapsed(" 12.25 (TaskRunner pid=1) a") == (12.25, "(TaskRunner pid=1) a")
    assert clock.split_elapsed("no number") == (None, "no number")
    assert clock.split_elapsed("0.5 is a loss")[0] is None  # time does not go back
    assert clock.read("INFO 11-21 10:00:07 [a.py:1] ") is None
    assert clock.is_elapsed
    clock = Clock()
    assert clock.split_elapsed("a") == (None, "a")
    assert clock.split_elapsed("0.5 is a loss") == (None, "0.5 is a loss")
    assert not clock.is_elapsed
