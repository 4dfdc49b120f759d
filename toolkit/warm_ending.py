"""When a warm-up ends before it is through: Ctrl-C, SIGTERM, or its time is up. What it has done by then is summed up."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator


class Ending:
    """Says why it is to end, "" as long as it is not."""

    def __init__(self, seconds: float | None = None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._told = ""

    def why(self) -> str:
        """The reason in words."""
        if not self._told and self._deadline is not None and time.monotonic() > self._deadline:
            self._told = "the time was up"
        return self._told

    @contextlib.contextmanager
    def at_signals(self) -> Iterator[None]:
        """Take the first Ctrl-C or SIGTERM as that wish; the second one is none of ours."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in numbers}

        def put_back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def told(number: int, _: object) -> None:
            self._told = f"{signal.Signals(number).name} ended it"
            put_back()

        for number in numbers:
            signal.signal(number, told)
        try:
            yield
        finally:
            put_back()
