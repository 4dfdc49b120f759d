"""Work that takes a core for seconds, done in a process of its own.

Reading thousands of syntax trees holds the interpreter's lock: two such readers in threads take as long as one after the
other, and everything else waits for them.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from verl_doctor.toolkit.machine import Machine

R = TypeVar("R")

# Both files lie in a folder that this user alone may enter, and are written by this code.
_ASKED, _ANSWERED = "asked", "answered"
_CHILD = """
import pickle, sys
sys.path[:] = pickle.loads(bytes.fromhex(sys.argv[2]))
from verl_doctor.toolkit.system.run_in_child import answer
answer(sys.argv[1])
"""


def aside(work: Callable[[], R], limit: float) -> R:
    """Return what this work gives, done in a child for at most `limit` seconds.

    Where there is one core alone, or the child ends without an answer, it is done here. Work and answer must be such
    as can be pickled: a `functools.partial` of a module's function. Raises TimeoutError.
    """
    if _cores() > 1:
        with TemporaryDirectory(prefix="verl-doctor-", ignore_cleanup_errors=True) as folder:
            Path(folder, _ASKED).write_bytes(pickle.dumps(work))
            child = [sys.executable, "-c", _CHILD, folder, pickle.dumps(sys.path).hex()]
            ended = Machine().run(child, timeout=limit)
            answered = Path(folder, _ANSWERED)
            if os.path.isfile(answered):
                return pickle.loads(answered.read_bytes())  # type: ignore[no-any-return] # noqa: S301 - see above
            if ended.code is None:
                raise TimeoutError(f"reading took longer than {limit:.0f} s")
    return work()


def answer(folder: str) -> None:
    """What the child does: read what is asked, and write the answer whole or not at all."""
    work = pickle.loads(Path(folder, _ASKED).read_bytes())  # noqa: S301 - see above
    unfinished = Path(folder, "unfinished")
    unfinished.write_bytes(pickle.dumps(work()))
    unfinished.replace(Path(folder, _ANSWERED))


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
