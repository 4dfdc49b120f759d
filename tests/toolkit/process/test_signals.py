"""Signals are taken for a while, and do afterwards what they did before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from verl_doctor.toolkit.process.signals import as_ctrl_c, taken

USED = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What reaches the handlers that were there before."""
    said: list[str] = []
    before = {number: signal.signal(number, lambda *_: said.append("before")) for number in USED}
    yield said
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_signal_is_reported_and_the_previous_handler_restored(heard: list[str]) -> None:
    with taken(USED, lambda number: heard.append(number.name)):
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    send(signal.SIGTERM)
    send(signal.SIGHUP)
    assert heard == ["SIGTERM", "SIGHUP", "before", "before"]


def test_second_signal_is_left_to_the_previous_handler(heard: list[str]) -> None:
    with taken(USED, lambda number: heard.append(number.name), once=True):
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    assert heard == ["SIGTERM", "before"]


def test_previous_handler_is_restored_after_an_exception(heard: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), as_ctrl_c(signal.SIGTERM):
        send(signal.SIGTERM)
    send(signal.SIGTERM)
    assert heard == ["before"]


def test_signal_ignored_by_nohup_stays_ignored(heard: list[str]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with as_ctrl_c(*USED):
        send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert heard == []


@pytest.mark.parametrize("ignored", [True, False])
def test_ignored_signal_is_not_reported(ignored: bool, heard: list[str]) -> None:
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with taken(USED, lambda number: heard.append(number.name)):
        send(signal.SIGHUP)
    assert heard == ([] if ignored else ["SIGHUP"])
