"""Signal handlers are replaced for a while and then restored."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from verl_doctor.toolkit.process.signals import as_ctrl_c, taken

USED = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def received() -> Iterator[list[str]]:
    """Calls of the previous handlers."""
    calls: list[str] = []
    before = {number: signal.signal(number, lambda *_: calls.append("before")) for number in USED}
    yield calls
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_signal_is_reported_and_the_previous_handler_restored(received: list[str]) -> None:
    with taken(USED, lambda number: received.append(number.name)):
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    send(signal.SIGTERM)
    send(signal.SIGHUP)
    assert received == ["SIGTERM", "SIGHUP", "before", "before"]


def test_second_signal_is_left_to_the_previous_handler(received: list[str]) -> None:
    with taken(USED, lambda number: received.append(number.name), once=True):
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    assert received == ["SIGTERM", "before"]


def test_previous_handler_is_restored_after_an_exception(received: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), as_ctrl_c(signal.SIGTERM):
        send(signal.SIGTERM)
    send(signal.SIGTERM)
    assert received == ["before"]


def test_signal_ignored_by_nohup_stays_ignored(received: list[str]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with as_ctrl_c(*USED):
        send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert received == []


@pytest.mark.parametrize("ignored", [True, False])
def test_ignored_signal_is_not_reported(ignored: bool, received: list[str]) -> None:
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with taken(USED, lambda number: received.append(number.name)):
        send(signal.SIGHUP)
    assert received == ([] if ignored else ["SIGHUP"])
