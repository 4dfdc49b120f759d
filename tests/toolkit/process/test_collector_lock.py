"""Turns: a single collector works at a time, and none waits long for a stuck one."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from support.trying import unless_disturbed

from verl_doctor.toolkit.engine import collect
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.process.collector_lock import TURNS, Turns

_LONG = 60.0  # seconds: no test waits that long


def test_single_collector_works_at_a_time() -> None:
    turns, inside, most = Turns(_LONG), [], []

    def work(number: int) -> None:
        with turns.turn():
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.001)
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    assert most == [1] * 16


def test_waiting_collector_lets_the_next_begin() -> None:
    turns, answered, alone = Turns(_LONG), threading.Event(), []

    def waits() -> None:
        with turns.turn(), turns.waiting():
            assert answered.wait(_LONG)

    def answers() -> None:
        with turns.turn():
            alone.append(True)
            answered.set()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(waits)
        pool.submit(answers).result(_LONG)
        first.result(_LONG)
    assert alone


def test_collector_runs_alone_again_after_waiting() -> None:
    turns = Turns(_LONG)
    with turns.turn():
        with turns.waiting():
            pass
        began = threading.Event()
        other = threading.Thread(target=lambda: _begin(turns, began), daemon=True)
        other.start()
        assert not began.wait(0.05)
    assert began.wait(_LONG)
    other.join(_LONG)


def test_hanging_collector_is_skipped_and_takes_no_later_turn() -> None:
    turns, first, hangs, third = Turns(0.02), threading.Event(), threading.Event(), threading.Event()

    def hanging() -> None:
        with turns.turn():
            first.set()
            hangs.wait(_LONG)

    stuck = threading.Thread(target=hanging, daemon=True)
    stuck.start()
    assert first.wait(_LONG)
    with turns.turn():
        turns._until = time.monotonic() + _LONG  # this one is not passed over
        hangs.set()
        stuck.join(_LONG)
        other = threading.Thread(target=lambda: _begin(turns, third), daemon=True)
        other.start()
        assert not third.wait(0.05)
    assert third.wait(_LONG)


def test_waiting_without_a_turn_has_no_effect() -> None:
    turns, began = Turns(_LONG), threading.Event()
    with turns.waiting():
        pass
    threading.Thread(target=lambda: _begin(turns, began), daemon=True).start()
    assert began.wait(_LONG)


def _begin(turns: Turns, began: threading.Event) -> None:
    with turns.turn():
        began.set()


@dataclass(frozen=True)
class Slow:
    done: bool


@dataclass(frozen=True)
class Quick:
    done: bool


@collector()
def slow() -> Slow:
    time.sleep(0.2)
    return Slow(done=True)


@collector(timeout=0.1)
def quick() -> Quick:
    return Quick(done=True)


@unless_disturbed
def test_time_limit_begins_with_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "TURNS", Turns(_LONG))
    collection = Collection([slow, quick], {})
    collection.start([Slow])
    time.sleep(0.05)
    assert collection.get(Quick) == Quick(done=True)


def test_child_runs_without_holding_the_turn() -> None:
    free = []

    def runner(*_: object) -> Output:
        free.append(TURNS._holder is None)
        return Output(0, "", "", 0.0)

    with TURNS.turn():
        Machine(runner=runner).run(["true"], timeout=1)
    assert free == [True]


def test_heaviest_collector_is_next() -> None:
    turns, order = Turns(_LONG), []

    def work(weight: float) -> None:
        with turns.turn(weight):
            order.append(weight)

    with ThreadPoolExecutor(3) as pool:
        with turns.turn():
            ended = [pool.submit(work, weight) for weight in (1.0, 5.0, 3.0)]
            ends = time.monotonic() + _LONG
            while len(turns._waiting) < 3 and time.monotonic() < ends:
                time.sleep(0.001)
        for future in ended:
            future.result(_LONG)
    assert order == [5.0, 3.0, 1.0]


@dataclass(frozen=True)
class Small:
    """Needed by the slow one."""


@dataclass(frozen=True)
class Other:
    """A fact without a reader."""


@dataclass(frozen=True)
class Slowest:
    """Takes long."""


def test_facts_needed_by_the_slowest_collector_come_first() -> None:
    @collector(timeout=5)
    def small() -> Small:
        return Small()

    @collector(timeout=30)
    def other() -> Other:
        return Other()

    @collector(timeout=200)
    def slow(small: Small) -> Slowest:
        return Slowest()

    weights = {fact.name: weight for fact, weight in Collection((small, other, slow), {})._weights.items()}
    assert weights == {"Small": 200, "Other": 30, "Slowest": 200}
