"""Collecting: every waiting thread gets a result, whatever happens to other threads."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest

from verl_doctor.toolkit.engine import collect
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Broken, Unknown, collector


@dataclass(frozen=True)
class Disk:
    free: int


@dataclass(frozen=True)
class Room:
    left: int


@collector()
def disk() -> Disk:
    return Disk(5)


@collector()
def room(disk: Disk) -> Room:
    return Room(disk.free)


def answer(collection: Collection, fact: type) -> Any:
    """Result of `get`, or a test failure instead of waiting forever."""
    got: Future[Any] = Future()
    ORIGINAL_START(
        threading.Thread(target=lambda: got.set_result(collection.get(fact)), name="asking", daemon=True)
    )
    return got.result(timeout=120)


ORIGINAL_START = threading.Thread.start


def no_threads(monkeypatch: pytest.MonkeyPatch, refused: Callable[[str], bool]) -> None:
    def start(self: threading.Thread) -> None:
        if refused(self.name):
            raise RuntimeError("can't start new thread")
        ORIGINAL_START(self)

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("which", ["Disk", "Disk-work"])
def test_failure_to_start_a_thread_is_reported_as_broken(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    no_threads(monkeypatch, lambda name: name == which)
    found = answer(Collection([disk], {}), Disk)
    assert isinstance(found, Broken)
    assert found.reason.startswith("this machine starts no more threads (can't start new thread)")
    assert "pids limit" in found.reason


def test_shortage_of_addresses_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    no_threads(monkeypatch, lambda name: name == "Disk")
    found = answer(Collection([disk], {}), Disk)
    assert isinstance(found, Broken)
    assert "ulimit -v leaves each process 1.0 GiB of addresses: raise it" in found.reason


def test_dependent_fact_has_the_same_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    no_threads(monkeypatch, lambda name: name == "Disk")
    found = answer(Collection([disk, room], {}), Room)
    assert isinstance(found, Broken)
    assert "no more threads" in found.reason
    assert found.trace == "Disk was not read"


def test_error_before_the_collector_runs_is_reported_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def arguments_from(needs: object, answers: object) -> None:
        raise KeyError("Disk")

    monkeypatch.setattr(collect, "arguments_from", arguments_from)
    found = answer(Collection([room], {Disk: Disk(1)}), Room)
    assert isinstance(found, Broken)
    assert found.reason == "reading Room broke: KeyError: 'Disk'"
    assert "arguments_from" in found.trace


class Speechless(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError("no words")


def test_error_that_cannot_be_printed_is_reported_as_broken() -> None:
    def breaks() -> Disk:
        raise Speechless

    found = answer(Collection([replace(disk, collect=breaks)], {}), Disk)
    assert isinstance(found, Broken)
    assert found.reason == "reading Disk broke: Speechless: it cannot be shown"


def test_fact_without_a_collector_is_a_result() -> None:
    assert answer(Collection([], {}), Disk) == Unknown("nothing here collects Disk")
