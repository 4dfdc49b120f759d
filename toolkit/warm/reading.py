"""Bringing a stretch of a file into the page cache, at no more cost than the disk's.

sendfile(2) from the file to /dev/null reads it as any program does, with the kernel's own reading ahead, and waits for it, so
that errors of the disk are heard; but nothing is copied, and no buffer is needed. Where little is read ahead, as the 128 kB of
a network file system, far away more has to be under way than that: posix_fadvise(WILLNEED) asks for it before. It costs more
than it brings where the disk is near, so the first stretches are read in both ways, and the rest in the one that was faster.

Of one such piece of advice the kernel takes no more than the read-ahead of the device, and reports success anyway
(force_page_cache_ra in mm/readahead.c): one call over a whole file warms 2 % of it. So it is given piece by piece. Nor does
every file system take it: whether it did makes no difference to what is read.
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
"""Bytes of one piece of work: what a thread has under way, and the grain of the progress."""
ENOUGH = 1024 * 1024
"""Bytes of read-ahead with which the kernel keeps a disk busy by itself."""
_READ_AHEAD = 128 * 1024  # bytes: the kernel's own default (VM_READAHEAD_PAGES)
_PIECE = 4 * 1024 * 1024  # bytes that are read between two looks at whether to stop
_TRIALS = 4  # stretches in each of the two ways
_CANNOT_SEND = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})

Stopped = Callable[[], bool]


def ahead_of(machine: Machine, device: int) -> int:
    """The bytes that the kernel reads ahead on the file system with this number (st_dev), in whole pages."""
    read_ahead_size = read_ahead(machine, f"{os.major(device)}:{os.minor(device)}") or _READ_AHEAD
    return max(PAGE, read_ahead_size // PAGE * PAGE)


def parts_with_data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of an open file that take room on the disk, as start and end, in whole pages: a hole costs nothing to read."""
    position = 0
    while position < size:
        try:
            start = os.lseek(file, position, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: nothing but a hole follows
                yield position, size
            return
        start, position = start // PAGE * PAGE, min(size, -(-end // PAGE) * PAGE)
        yield start, position


def cached(file: int, start: int, length: int) -> int | None:
    """How many bytes of a stretch are in the page cache; None where the kernel does not tell."""
    try:
        seen = residency(file, start, length)
    except OSError:
        return None
    return None if isinstance(seen, Unknown) else min(seen.cached, length)


class Device:
    """A file system that reads so many bytes `ahead`, and whether it is faster when it is advised before."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._seconds: dict[bool, list[float]] = {True: [], False: []}  # for a byte

    def wants_advice(self) -> bool:
        """Both ways in turn until they can be compared."""
        advised, plain = self._seconds[True], self._seconds[False]
        if self.ahead >= ENOUGH:
            return False
        if min(len(advised), len(plain)) < _TRIALS:
            return len(advised) < len(plain)
        return statistics.median(advised) < statistics.median(plain)

    def took(self, seconds: float, size: int, *, advised: bool) -> None:
        """Remember what a stretch took in one of the ways."""
        if len(self._seconds[advised]) < _TRIALS and size:
            self._seconds[advised].append(seconds / size)


def fetch(file: int, start: int, end: int, device: Device, stopped: Stopped) -> None:
    """Read this stretch of an open file. Raises OSError."""
    advised, begun = device.wants_advice(), time.monotonic()
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
        if not done:  # the file has become shorter
            return
        start += done


def _sent(file: int, start: int, length: int) -> int:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        return os.sendfile(nowhere, file, start, length)
    finally:
        os.close(nowhere)


def _copied(file: int, start: int, length: int) -> int:
    """For the file systems that know nothing of sendfile."""
    return os.preadv(file, [bytearray(length)], start)
