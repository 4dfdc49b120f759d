"""Runs CPU-bound work of several seconds in a separate process.

Parsing thousands of files holds the interpreter's lock: two such threads take as long as one after the other,
and everything else waits for them.
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

# Only this code writes both files, in a folder that no other user can enter.
_REQUEST, _RESULT = "request", "result"
_CHILD = """
import pickle, sys
sys.path[:] = pickle.loads(bytes.fromhex(sys.argv[2]))
from verl_doctor.toolkit.system.run_in_child import write_result
write_result(sys.argv[1])
"""


def in_child(work: Callable[[], R], limit: float) -> R:
    """Return the result of this work, which a child process does within `limit` seconds.

    With a single core, or if the child ends without a result, it is done in this process. Work and result
    must be picklable: a `functools.partial` of a module's function. Raises TimeoutError.
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


def write_result(folder: str) -> None:
    """Do the work in the child, and write the result atomically."""
    work = pickle.loads(Path(folder, _REQUEST).read_bytes())  # noqa: S301 - see above
    unfinished = Path(folder, "unfinished")
    unfinished.write_bytes(pickle.dumps(work()))
    unfinished.replace(Path(folder, _RESULT))


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
