"""Taking turns at the interpreter, so that collectors do not fight for its lock.

Python runs one thread at a time. Each look at a file lets the lock go and has to win it back, and reading an environment
is 50,000 such looks: ten threads that do this side by side spend as long on the lock as on the files. So one works at a
time, and whoever waits for something outside of the interpreter lets the next one begin.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

# How long the others wait for one that does not say that it waits: perhaps for a slow disk or a name server.
_LONGEST_TURN = 0.2  # seconds


class Turns:
    """One turn, and who has it."""

    def __init__(self, patience: float = _LONGEST_TURN) -> None:
        self._patience = patience
        self._freed = threading.Condition()
        self._holder: int | None = None
        self._until = 0.0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Work as the only one, once those that are working have ended, wait for something, or have had it for too long."""
        self._take()
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for something outside of the interpreter: meanwhile it is somebody else's turn."""
        had_it = self._leave()
        try:
            yield
        finally:
            if had_it:
                self._take()

    def _take(self) -> None:
        with self._freed:
            while self._holder is not None and (left := self._until - time.monotonic()) > 0:
                self._freed.wait(left)
            self._holder = threading.get_ident()
            self._until = time.monotonic() + self._patience

    def _leave(self) -> bool:
        """Whether it was this thread's turn: somebody who lost patience may have taken it."""
        with self._freed:
            if self._holder != threading.get_ident():
                return False
            self._holder = None
            self._freed.notify()
            return True


TURNS = Turns()
"""Of this process, for it has one interpreter."""
