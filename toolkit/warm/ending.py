"""When a warm-up ends before it is through: Ctrl-C, SIGTERM, the end of the terminal, or its time is up. What it has done by then is summed up."""

from __future__ import annotations

import contextlib
import signal
import time

from verl_doctor.toolkit.process.signals import taken


class Ending:
    """Says why it is to end, "" as long as it is not."""

    def __init__(self, seconds: float | None = None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._reason = ""

    def why(self) -> str:
        """The reason in words."""
        if not self._reason and self._deadline is not None and time.monotonic() > self._deadline:
            self._reason = "the time was up"
        return self._reason

    def at_signals(self) -> contextlib.AbstractContextManager[None]:
        """Take the first Ctrl-C, SIGTERM or SIGHUP as that wish; the second one is none of ours."""
        return taken((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._tell, once=True)

    def _tell(self, number: signal.Signals) -> None:
        self._reason = f"{number.name} ended it"
