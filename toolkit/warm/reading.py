"""Reads a stretch of a file into the page cache at the speed of the disk.

sendfile(2) from the file to /dev/null reads it as any program does, with the kernel's own read-ahead, and
waits for it, so that disk errors are reported; but nothing is copied, and no buffer is needed. A small
read-ahead, such as the 128 kB of a network file system, is too little for a file system with a high latency:
posix_fadvise(WILLNEED) requests more in advance. On a local disk that costs more than it gains, so the first
stretches are read in both ways, and the rest in the faster one.

The kernel silently limits each advice to the device's read-ahead (force_page_cache_ra in mm/readahead.c): one
call for a whole file warms 2 % of it. So it is given piece by piece. Not every file system supports it; that
does not affect what is read.
"""

from __future__ import annotations

import errno
import os
import statistics
import time
from collections.abc import Callable, Iterator

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import read_ahead
from verl_doctor.toolkit.system.page_cache import residency

PAGE = os.sysconf("SC_PAGESIZE")
STRETCH = 32 * 1024 * 1024
"""Bytes of a stretch: what a thread has in flight, and the granularity of the progress."""
ENOUGH = 1024 * 1024
"""Bytes of read-ahead that are enough for the kernel to keep a disk busy."""
_READ_AHEAD = 128 * 1024  # bytes: the kernel's own default (VM_READAHEAD_PAGES)
_PIECE = 4 * 1024 * 1024  # bytes read between two checks for a stop
_TRIALS = 4  # stretches measured in each of the two ways
_CANNOT_SEND = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})

Stopped = Callable[[], bool]


def ahead_of(machine: Machine, device: int) -> int:
    """Return the read-ahead in bytes, in whole pages, of the file system with this number (st_dev)."""
    read_ahead_size = read_ahead(machine, f"{os.major(device)}:{os.minor(device)}") or _READ_AHEAD
    return max(PAGE, read_ahead_size // PAGE * PAGE)


def parts_with_data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the allocated parts of an open file as start and end, in whole pages; holes cost no reading."""
    position = 0
    while position < size:
        try:
            start = os.lseek(file, position, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: only a hole follows
                yield position, size
            return
        start, position = start // PAGE * PAGE, min(size, -(-end // PAGE) * PAGE)
        yield start, position


def cached(file: int, start: int, length: int) -> int | None:
    """Return how many bytes of a stretch are in the page cache; None if the kernel does not report it."""
    try:
        seen = residency(file, start, length)
    except OSError:
        return None
    return None if isinstance(seen, Unknown) else min(seen.cached, length)


class Device:
    """A file system with this read-ahead in bytes, and whether it is faster with advice."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._seconds: dict[bool, list[float]] = {True: [], False: []}  # seconds per byte

    def gives_advice(self) -> bool:
        """Return whether to give advice: the two ways alternate until they can be compared."""
        advised, plain = self._seconds[True], self._seconds[False]
        if self.ahead >= ENOUGH:
            return False
        if min(len(advised), len(plain)) < _TRIALS:
            return len(advised) < len(plain)
        return statistics.median(advised) < statistics.median(plain)

    def took(self, seconds: float, size: int, *, advised: bool) -> None:
        """Record the time that a stretch took in one of the two ways."""
        if len(self._seconds[advised]) < _TRIALS and size:
            self._seconds[advised].append(seconds / size)


def fetch(file: int, start: int, end: int, device: Device, stopped: Stopped) -> None:
    """Read this stretch of an open file. Raises OSError."""
    advised, begun = device.gives_advice(), time.monotonic()
    _read(file, start, end, device.ahead if advised else 0, stopped)
    device.took(time.monotonic() - begun, end - start, advised=advised)


def _read(file: int, start: int, end: int, ahead: int, stopped: Stopped) -> None:
    if ahead:
        for position in range(start, end, ahead):
            os.posix_fadvise(file, position, min(ahead, end - position), os.POSIX_FADV_WILLNEED)
    read = _sent
    while start < end and not stopped():
        try:
            done = read(file, start, min(_PIECE, end - start))
        except OSError as error:
            if read is _copied or error.errno not in _CANNOT_SEND:
                raise
            read = _copied
            continue
        if not done:  # the file was truncated
            return
        start += done


def _sent(file: int, start: int, length: int) -> int:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        return os.sendfile(nowhere, file, start, length)
    finally:
        os.close(nowhere)


def _copied(file: int, start: int, length: int) -> int:
    """Read and discard a stretch, for file systems without sendfile."""
    return os.preadv(file, [bytearray(length)], start)
