"""Work in a process of its own gives what it gives here, and its end is never the end of the run."""

from __future__ import annotations

import os
import threading
import time
from functools import partial

import pytest

from verl_doctor.toolkit.system import run_in_child as module
from verl_doctor.toolkit.system.run_in_child import in_child


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cores", lambda: 2)


def test_it_is_done_by_another_process() -> None:
    assert in_child(os.getpid, 30) != os.getpid()


def test_with_one_core_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cores", lambda: 1)
    assert in_child(os.getpid, 30) == os.getpid()


def test_what_it_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        in_child(partial(divmod, 1, 0), 30)


def test_an_answer_that_cannot_travel_is_made_here() -> None:
    assert isinstance(in_child(threading.Event, 30), threading.Event)


@pytest.mark.slow
def test_a_child_that_hangs_is_ended() -> None:
    with pytest.raises(TimeoutError):
        in_child(partial(time.sleep, 60), 0.5)
