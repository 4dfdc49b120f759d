"""Files without any page in the page cache, on a file system that can drop pages."""

from __future__ import annotations

import os
import time
from pathlib import Path

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.system.page_cache import residency


def written(path: Path, size: int) -> Path:
    """Return a file of this many random bytes, of which nothing is cached."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    evict(path)
    return path


def evict(path: Path, patience: float = 20.0) -> None:
    """Remove all of a file from the page cache. Raises AssertionError if its file system keeps it.

    Pages that are still being read ahead cannot be dropped, so it is tried for some seconds.
    """
    number = os.open(path, os.O_RDONLY)
    deadline = time.monotonic() + patience
    try:
        while True:
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            if cached_share(path) == 0:
                return
            assert time.monotonic() < deadline, f"{path} cannot be evicted"
            time.sleep(0.01)
    finally:
        os.close(number)


def cached_share(path: Path) -> float:
    """Return the part of a file that is in the page cache."""
    number = os.open(path, os.O_RDONLY)
    try:
        seen = residency(number)
    finally:
        os.close(number)
    assert not isinstance(seen, Unknown), seen
    return seen.share
