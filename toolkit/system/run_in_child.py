"""Runs work that takes a core for seconds in a separate process.

Parsing thousands of files holds the interpreter's lock: two such readers in threads take as long as one after the other, and
everything else waits for them.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.locked_folder import temporary_folder

R = TypeVar("R")

# Both files lie in a folder that only this user may enter, and are written by this code.
_REQUEST, _RESULT = "asked", "answered"
_CHILD = """
import pickle, sys
sys.path[:] = pickle.loads(bytes.fromhex(sys.argv[2]))
from verl_doctor.toolkit.system.run_in_child import answer
answer(sys.argv[1])
"""


def aside(work: Callable[[], R], limit: float) -> R:
    """Return the result of this work, done in a child for at most `limit` seconds.

    With a single core, or when the child ends without a result, it is done here. Work and result must be picklable: a
    `functools.partial` of a module's function. Raises TimeoutError.
    """
    if _cores() > 1:
        with temporary_folder() as folder:
            Path(folder, _REQUEST).write_bytes(pickle.dumps(work))
            child = [sys.executable, "-c", _CHILD, folder, pickle.dumps(sys.path).hex()]
            ended = Machine().run(child, timeout=limit)
            result = Path(folder, _RESULT)
            if os.path.isfile(result):
                return pickle.loads(result.read_bytes())  # type: ignore[no-any-return] # noqa: S301 - see above
            if ended.code is None:
                raise TimeoutError(f"reading took longer than {limit:.0f} s")
    return work()


def answer(folder: str) -> None:
    """Run in the child: read the work, and write the result whole or not at all."""
    work = pickle.loads(Path(folder, _REQUEST).read_bytes())  # noqa: S301 - see above
    unfinished = Path(folder, "unfinished")
    unfinished.write_bytes(pickle.dumps(work()))
    unfinished.replace(Path(folder, _RESULT))


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
