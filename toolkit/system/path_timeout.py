"""File-system calls with a time limit, because they never return on a dead network mount."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

PATH_TIMEOUT = 5  # seconds


def in_time(query: Callable[[], T], patience: float | None = None) -> T | None:
    """Return the result of a check of a path; None when it timed out."""
    return all_in_time([query], patience)[0]


def all_in_time(questions: Sequence[Callable[[], T]], patience: float | None = None) -> list[T | None]:
    """Run all checks in parallel.

    Return the result of each; None for those that exceeded this many seconds (`PATH_TIMEOUT`).

    A hanging check cannot be stopped. It stays in a daemon thread, which does not keep the process alive.
    Raises OSError if no thread can be started.
    """
    answers: list[T | None] = [None] * len(questions)

    def query(number: int) -> None:
        answers[number] = questions[number]()

    threads = [
        threading.Thread(target=query, args=(number,), daemon=True) for number in range(len(questions))
    ]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:  # this user may have reached the thread limit
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    until = time.monotonic() + (PATH_TIMEOUT if patience is None else patience)
    for thread in threads:
        thread.join(max(0, until - time.monotonic()))
    return list(answers)
