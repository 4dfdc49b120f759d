"""Collects facts: each once, only when requested, a few at a time, and never beyond its time limit."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, nullcontext
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Protocol, cast

from verl_doctor.toolkit.deferred import function_of
from verl_doctor.toolkit.facts import Broken, Collector, F, FactReference, Need, Unknown, arguments_from
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.text import in_bytes

if TYPE_CHECKING:
    from verl_doctor.toolkit.rule import Check

# A thread needs an entry in the process table, and address space for its stack.
_MORE_PROCESSES = "raise the limit on processes (pids limit of the container, ulimit -u), or end some"


class Facts(Protocol):
    """Where rules get their facts."""

    def get(self, fact: type[F]) -> F | Unknown:
        """Return the fact, or why it is unavailable."""


class Memory(Protocol):
    """What is known from an earlier run and still holds."""

    def fact(self, reference: FactReference) -> Any:
        """Return the fact, or None where it must be observed."""

    def compare(self, collection: Collection) -> None:
        """Determine what still holds, before anything is requested from this collection."""

    def looking(self, collector: Collector) -> AbstractContextManager[None]:
        """Return a block in which a collector observes its fact."""

    def outcome(self, check: Check) -> Any:
        """Return the outcome of a rule, or None where it must be judged."""

    def note(self, check: Check, outcome: Any) -> None:
        """Record the outcome of a rule."""

    def age(self) -> float:
        """Return how many seconds ago the earlier run was."""


class Collection:
    """All facts of one subject: given, held by a `memory`, or collected on demand.

    Each collector runs in a separate daemon thread, so that a hanging collector cannot keep the doctor alive.
    """

    def __init__(
        self, collectors: Iterable[Collector], given: Mapping[type, Any], memory: Memory | None = None
    ) -> None:
        self.memory = memory
        self._collectors = {collector.reference: collector for collector in collectors}
        self._futures: dict[FactReference, Future[Any]] = {}
        self._lock = threading.Lock()
        circular = _circular(self._collectors)
        self._weights = _weights(self._collectors, circular)
        for fact, value in {
            **circular,
            **{FactReference.of(fact): value for fact, value in given.items()},
        }.items():
            self._futures[fact] = Future()
            self._futures[fact].set_result(value)

    def start(self, facts: Iterable[type | FactReference]) -> None:
        """Begin to collect these facts without waiting for them."""
        for fact in facts:
            self._future(FactReference.of(fact))

    def give(self, fact: type[F], value: F | Unknown) -> None:
        """Add a fact that was observed other than by its collector, before it is requested."""
        future: Future[Any] = Future()
        future.set_result(value)
        with self._lock:
            self._futures[FactReference.of(fact)] = future

    def get(self, fact: type[F]) -> F | Unknown:
        """Wait for a fact.

        A collector that raises or takes too long results in a `Broken` with the reason.
        """
        return cast("F | Unknown", self._future(FactReference.of(fact)).result())

    def lacking(self, needs: Iterable[Need]) -> Unknown | None:
        """Return the first of these facts that is required and unavailable.

        No class of a fact is imported for it.
        """
        outcomes = (self._future(need.reference).result() for need in needs if not need.tolerant)
        return next((outcome for outcome in outcomes if isinstance(outcome, Unknown)), None)

    def has(self, fact: type | FactReference) -> bool:
        """Return whether a fact was already requested."""
        with self._lock:
            return FactReference.of(fact) in self._futures

    def is_soon(self, fact: type, seconds: float) -> bool:
        """Begin to collect a fact, and return whether it is available within so many seconds."""
        with contextlib.suppress(FutureTimeout):
            self._future(FactReference.of(fact)).result(timeout=seconds)
            return True
        return False

    def is_likely(self, fact: type | FactReference) -> bool:
        """Return whether the source of a fact exists, as far as that is known without reading it."""
        collector = self._collectors.get(FactReference.of(fact))
        return collector is not None and self.lacking(collector.needs) is None

    def _future(self, fact: FactReference) -> Future[Any]:
        with self._lock:
            future = self._futures.get(fact)
            if future is not None:
                return future
            future = self._futures[fact] = Future()
        collector = self._collectors.get(fact)
        if self.memory is not None and (known := self.memory.fact(fact)) is not None:
            future.set_result(known)
        elif collector is None:
            future.set_result(Unknown(f"nothing here collects {fact.name}"))
        else:
            try:
                threading.Thread(
                    target=self._run, args=(collector, future), name=collector.name, daemon=True
                ).start()
            except (RuntimeError, MemoryError) as error:
                future.set_result(_no_thread(collector, error))
        return future

    def _run(self, collector: Collector, future: Future[Any]) -> None:
        """Set a result in any case: callers wait without a limit."""
        try:
            self.start(need.reference for need in collector.needs)
            outcome = self.lacking(collector.needs) or self._collect(collector)
        except BaseException as error:  # noqa: BLE001 - see above
            outcome = _broke(collector, error)
        future.set_result(outcome)

    def _collect(self, collector: Collector) -> Any:
        """Return the collector's result. Its module is imported before its time limit starts."""
        function_of(collector.collect)
        arguments = arguments_from(collector.needs, self.get)
        return (
            arguments
            if isinstance(arguments, Unknown)
            else _within_time(collector, arguments, self.memory, self._weights[collector.reference])
        )


def _circular(collectors: Mapping[FactReference, Collector]) -> dict[FactReference, Broken]:
    """Return facts that need each other and would wait forever: a plugin's mistake must not hang the run."""
    graph = {fact: [need.reference for need in collector.needs] for fact, collector in collectors.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
        reason = f"these facts need each other: {', '.join(fact.name for fact in circle)}"
        broken = dict.fromkeys(circle, Broken(reason))
        return {**_circular({f: c for f, c in collectors.items() if f not in broken}), **broken}
    return {}


def _weights(
    collectors: Mapping[FactReference, Collector], circular: Iterable[FactReference]
) -> dict[FactReference, float]:
    """Return for each fact the longest limit of collectors waiting for it: the slowest's needs come first."""
    weights = {fact: collector.timeout for fact, collector in collectors.items()}
    graph = {
        fact: [need.reference for need in collector.needs]
        for fact, collector in collectors.items()
        if fact not in circular
    }
    for fact in reversed(tuple(TopologicalSorter(graph).static_order())):
        for need in graph.get(fact, ()):
            if need in weights:
                weights[need] = max(weights[need], weights[fact])
    return weights


def _within_time(
    collector: Collector, arguments: Mapping[str, Any], memory: Memory | None, weight: float
) -> Any:
    """Run a collector when its turn comes, and stop waiting for it after its time limit."""
    outcome: Future[Any] = Future()
    begun = threading.Event()

    def work() -> None:
        try:
            with (
                TURNS.turn(weight, collector.name),
                memory.looking(collector) if memory is not None else nullcontext(),
            ):
                begun.set()
                found = collector.collect(**arguments)
            outcome.set_result(found)
        except BaseException as error:  # noqa: BLE001 - whatever a collector raises becomes a result
            outcome.set_result(_broke(collector, error))
            begun.set()

    try:
        threading.Thread(target=work, name=f"{collector.name}-work", daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        return _no_thread(collector, error)
    begun.wait()
    started = time.monotonic()
    try:
        return outcome.result(timeout=collector.timeout)
    except FutureTimeout:
        waited = time.monotonic() - started
        return Broken(f"reading {collector.name} took longer than {waited:.0f} s")


def _broke(collector: Collector, error: BaseException) -> Broken:
    trace = "".join(traceback.format_exception(error))
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - formatting a plugin's exception may raise
        text = "it cannot be shown"
    name = type(error).__name__
    return Broken(f"reading {collector.name} broke: {name}: {text}", trace, name, text)


def _no_thread(collector: Collector, error: BaseException) -> Broken:
    """Running it here would mean no time limit. The reason is the same for all: one cause."""
    import resource  # noqa: PLC0415 - exists on Unix alone

    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    few = f"ulimit -v leaves each process {in_bytes(addresses)} of addresses: raise it, or else "
    ways_out = ("" if addresses == resource.RLIM_INFINITY else few) + _MORE_PROCESSES
    return Broken(
        f"this machine starts no more threads ({error}); {ways_out}", f"{collector.name} was not read"
    )
