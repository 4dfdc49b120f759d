"""Folders that are somebody's for as long as he runs: a lock in them falls with its owner, however he ends, and who comes next clears up.

Where the file system has no locks, nothing is known to be abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_LOCK = "owned"


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own this folder. Raises OSError when nothing can be written into it."""
    with (folder / _LOCK).open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def abandoned(place: Path, prefix: str) -> Iterator[Path]:
    """This user's folders there whose name begins so and whose owner has ended; nobody else gets one while it is looked at."""
    for lock in place.glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("r+") as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield lock.parent
