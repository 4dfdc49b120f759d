"""An import of a plugin is limited in time by an alarm, which leaves the alarm of others as it was."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from verl_doctor.toolkit.engine.plugin_exit import PluginHangError, limited_import


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def test_outer_timer_goes_on(alarms: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 500, 70)
    with limited_import(20):
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 1
    left, again = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left <= 500
    assert again == pytest.approx(70)
    assert alarms == []


def test_overdue_alarm_is_delivered_to_its_owner(alarms: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(PluginHangError), limited_import(0.2):
        signal.sigtimedwait([], 30)
    while not alarms:
        signal.sigtimedwait([], 1)
    assert alarms == [signal.SIGALRM]


def test_without_a_timer_none_is_left(alarms: list[int]) -> None:
    with limited_import(20):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert alarms == []
