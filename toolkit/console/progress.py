"""A progress line on stderr, for a user at a terminal who has waited for more than half a second."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from types import TracebackType
from unicodedata import east_asian_width

from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.text import harmless, listed

_QUIET = 0.5  # seconds
_STEP = 0.1  # seconds between two updates
_COLUMNS = 78


def announce(sentence: str) -> None:
    """Print the current step on stderr, in a line that stays."""
    print(f"verl-doctor {harmless(sentence)}", file=sys.stderr, flush=True)


class Progress:
    """Shows the current step, and clears the line at the end. Silent unless stderr is a terminal."""

    def __init__(self) -> None:
        self._doing = ""
        self._done = threading.Event()
        self._started = time.monotonic()
        self._shown = False
        self._line = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Progress:  # noqa: PYI034 - Self is newer than Python 3.10
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def show(self, doing: str) -> None:
        """Show the current step."""
        self._doing = doing

    def done(self, sentence: str) -> None:
        """Print a completed step in a line that stays, even without a terminal."""
        if sys.stderr is None:
            return
        with self._line:
            if self._shown:
                sys.stderr.write("\r\x1b[2K")
            print(harmless(sentence), file=sys.stderr, flush=True)

    def _watch(self) -> None:
        while not self._done.wait(_STEP):
            waited = time.monotonic() - self._started
            if waited >= _QUIET:
                self._shown = True
                doing = "; ".join(filter(None, (self._doing, _reading())))
                line = _cut(harmless(f"{waited:4.1f} s  {doing}"), _columns())
                with self._line:
                    sys.stderr.write(f"\r\x1b[2K{line}")
                    sys.stderr.flush()


def _reading() -> str:
    """Return what a rule waits for: the collectors at work, the one that began first by name."""
    names = list(TURNS.at_work.copy().values())
    return f"reading {listed(names, 1)}" if names else ""


def _columns() -> int:
    """Return how wide the line may be: one that is wrapped could not be cleared."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # no file, or no terminal
        return _COLUMNS
    return min(columns - 1, _COLUMNS) if columns > 0 else _COLUMNS


def _cut(line: str, columns: int) -> str:
    """Return the beginning of a line that takes no more than these columns; some characters take two."""
    widths = (2 if east_asian_width(character) in "WF" else 1 for character in line)
    fitting = sum(1 for end in itertools.accumulate(widths) if end <= columns)
    return line[:fitting]
