"""Work in a child process gives the same result, and its end never ends the run."""

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


def test_function_runs_in_another_process() -> None:
    assert in_child(os.getpid, 30) != os.getpid()


def test_function_runs_locally_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cores", lambda: 1)
    assert in_child(os.getpid, 30) == os.getpid()


def test_exception_is_raised_in_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        in_child(partial(divmod, 1, 0), 30)


def test_unpicklable_result_is_computed_locally() -> None:
    assert isinstance(in_child(threading.Event, 30), threading.Event)


@pytest.mark.slow
def test_hanging_child_is_ended() -> None:
    with pytest.raises(TimeoutError):
        in_child(partial(time.sleep, 60), 0.5)
