"""Lets collectors take turns at the interpreter, so that they do not contend for its lock.

Each file access releases the interpreter's lock and must reacquire it. Reading an environment takes 50,000
file accesses, so ten threads in parallel spend as much time on the lock as on the files. Therefore one
collector runs at a time, and a collector that waits for something outside the interpreter lets the next one
begin.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

# How long the others wait for a collector that does not report that it waits, perhaps for a slow disk or a
# name server.
_LONGEST_TURN = 0.2  # seconds
_SOON = 0.01  # seconds until a thread looks again whether a heavier one has taken its turn


class Turns:
    """One turn, the thread that holds it, and the weights of the threads that wait for it.

    `at_work` names what has begun and not ended, by thread, the first first.
    """

    def __init__(self, patience: float = _LONGEST_TURN) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._until = 0.0
        self._waiting: dict[int, tuple[float, threading.Condition]] = {}
        self.at_work: dict[int, str] = {}

    @contextlib.contextmanager
    def turn(self, weight: float = 0.0, name: str = "") -> Iterator[None]:
        """Run alone, as soon as each running collector has ended, waits for something, or exceeded its turn.

        Of those that wait, the one with the largest `weight` is next.
        """
        self._take(weight)
        self.at_work[threading.get_ident()] = name
        try:
            yield
        finally:
            del self.at_work[threading.get_ident()]
            self._leave()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let another collector run while this block waits for something outside the interpreter."""
        had_it = self._leave()
        try:
            yield
        finally:
            if had_it:
                self._take(math.inf)

    def _take(self, weight: float) -> None:
        own, freed = threading.get_ident(), threading.Condition(self._lock)
        with self._lock:
            self._waiting[own] = weight, freed
            while self._is_held() or weight < self._heaviest()[0]:
                freed.wait(max(self._until - time.monotonic(), _SOON))
            del self._waiting[own]
            self._holder = own
            self._until = time.monotonic() + self._patience

    def _leave(self) -> bool:
        """End a turn, and wake the thread that is next: dozens wait, and each that wakes costs two switches.

        Return whether this thread still held it: another may have taken it after the time limit.
        """
        with self._lock:
            if self._holder != threading.get_ident():
                return False
            self._holder = None
            if self._waiting:
                self._heaviest()[1].notify()
            return True

    def _heaviest(self) -> tuple[float, threading.Condition]:
        return max(self._waiting.values(), key=lambda waiting: waiting[0])

    def _is_held(self) -> bool:
        return self._holder is not None and self._until > time.monotonic()


TURNS = Turns()
"""The turn of this process, which has one interpreter."""
