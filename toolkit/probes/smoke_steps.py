"""Reports the steps of the smoke test's children, as each begins and ends.

Runs first in them, under the target's interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any


def emit(**what: Any) -> None:
    """Write one line to a channel without other output."""
    with open(os.environ["VERL_DOCTOR_TOLD"], "a", encoding="utf-8") as file:  # noqa: PTH123 - the target's Python may be old
        file.write(json.dumps(what) + "\n")


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Report that a step begins, and how long it took if it succeeded."""
    emit(begun=name)
    clock, cpu = time.monotonic(), time.process_time()
    yield
    emit(step=name, seconds=round(time.monotonic() - clock, 3), cpu=round(time.process_time() - cpu, 3))
