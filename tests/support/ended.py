"""Whether a process has ended. A killed one ends when the kernel next runs it, on a loaded machine not at once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

_LONGEST = 120.0  # seconds


def is_running(pid: int | str) -> bool:
    """Return whether there is a process with this number that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for_end(pids: Iterable[int | str]) -> None:
    """Wait until all of these have ended. Raises AssertionError if one has not after two minutes."""
    deadline = time.monotonic() + _LONGEST
    while running := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.01)
