"""Ends a warm-up early: Ctrl-C, SIGTERM, the end of the terminal, or a time limit.

Its work so far is summarised.
"""

from __future__ import annotations

import contextlib
import signal
import time

from verl_doctor.toolkit.process.signals import taken


class Ending:
    """The reason to end, "" while there is none."""

    def __init__(self, seconds: float | None = None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._reason = ""

    def why(self) -> str:
        """Return the reason to end, "" if there is none."""
        if not self._reason and self._deadline is not None and time.monotonic() > self._deadline:
            self._reason = "the time limit was reached"
        return self._reason

    def at_signals(self) -> contextlib.AbstractContextManager[None]:
        """Treat the first Ctrl-C, SIGTERM or SIGHUP as a request to end. The second has its usual effect."""
        return taken((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._end, once=True)

    def _end(self, number: signal.Signals) -> None:
        self._reason = f"{number.name} ended it"
