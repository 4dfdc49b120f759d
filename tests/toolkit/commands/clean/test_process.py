"""Processes that were found to be left over are ended only when a second look finds the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.orphaned import ENGINE, Reaper, reaper

from verl_doctor.toolkit.collectors.leftovers import orphans
from verl_doctor.toolkit.commands.clean.process import remove
from verl_doctor.toolkit.leftover import EndProcess, Leftover
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import process_activity
from verl_doctor.toolkit.system.process_table import row_of


@pytest.fixture
def tini(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reaper]:
    """The first process of a container, in which processes count as old at once."""
    monkeypatch.setattr(orphans, "YOUNG", 0.0)
    monkeypatch.setattr(process_activity, "WINDOW", 0.05)
    with reaper() as one:
        yield one


def leftover(pid: int) -> Leftover:
    """A leftover as an earlier observation would have found it."""
    row = row_of(pid, Machine())
    assert row is not None
    return Leftover("process", ENGINE, ("it was seen",), EndProcess(pid, row.ticks))


def outcome(one: Leftover) -> tuple[str, str]:
    """Outcome of the removal, and the reason."""
    (done,) = remove([one], Machine())
    return done.state, done.why


def test_leftover_process_is_ended(tini: Reaper) -> None:
    trainer, (engine,) = tini.job(ENGINE)
    one = leftover(engine)
    assert outcome(one) == ("not removed", "a second look no longer proves it")  # its trainer runs
    tini.kill(trainer)
    assert outcome(one) == ("removed", "")


@pytest.mark.slow
def test_process_no_longer_proven_to_be_a_leftover_is_not_ended(
    tini: Reaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, (engine,) = tini.job(ENGINE)
    tini.kill(trainer)
    monkeypatch.setattr(orphans, "YOUNG", 3600.0)
    assert outcome(leftover(engine)) == ("not removed", "a second look no longer proves it")
    assert row_of(engine, Machine()) is not None
