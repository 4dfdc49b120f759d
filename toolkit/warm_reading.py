"""Bringing a stretch of a file into the page cache, and the proof that it came.

posix_fadvise(WILLNEED) needs no buffer and copies nothing, and the kernel reads far ahead while it returns. But of one call it
takes the first piece alone, as long as the read-ahead of the device, and reports success all the same
(force_page_cache_ra in mm/readahead.c): so it is asked piece by piece. Some file systems ignore it altogether. So what is
resident afterwards is looked at, and what is not is read into a small buffer.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.page_cache import residency

PAGE = os.sysconf("SC_PAGESIZE")
STRETCH = 32 * 1024 * 1024
"""Bytes of one piece of work: what a thread has under way, and the grain of the progress."""
_LONGEST_STEP = 2 * 1024 * 1024  # bytes: into such pieces the kernel cuts what it reads ahead
_READ_AHEAD = 128 * 1024  # bytes: the kernel's own default (VM_READAHEAD_PAGES)
_BUFFER = 4 * 1024 * 1024  # bytes
_CAME = (
    0.9  # share of a stretch that shows that the advice was taken; the rest may have been pushed out again
)
_REFUSALS = 2  # stretches in a row that did not come, after which a device is not asked any more


def read_ahead(machine: Machine, device: int) -> int:
    """The bytes that one piece of advice may ask for on the file system with this number (st_dev)."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for path in (
        f"/sys/class/bdi/{number}/read_ahead_kb",
        f"/sys/dev/block/{number}/queue/read_ahead_kb",
        f"/sys/dev/block/{number}/../queue/read_ahead_kb",  # of a partition
    ):
        said = (machine.read(path) or "").strip()
        if said.isdecimal() and int(said):
            return max(PAGE, min(_LONGEST_STEP, int(said) * 1024 // PAGE * PAGE))
    return _READ_AHEAD


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


@dataclass
class Device:
    """A file system, and what has been learned of it: whether it takes advice."""

    step: int
    advised: bool = True
    read: bool = False
    _refused: int = 0
    took_advice: bool = field(default=False)

    def learn(self, came: bool) -> None:
        """Remember what became of a stretch that was asked for."""
        self.took_advice = self.took_advice or came
        self._refused = 0 if came else self._refused + 1
        if self._refused >= _REFUSALS and not self.took_advice:
            self.advised = False


Stopped = Callable[[], bool]


def fetch(file: int, start: int, end: int, device: Device, stopped: Stopped) -> int:
    """Have this stretch of an open file in the page cache; how many of its bytes were not there. Raises OSError."""
    length = end - start
    before = cached(file, start, length)
    if before is not None and before >= length:
        return 0
    if device.advised and before is not None:
        _advise(file, start, end, device.step, stopped)
        after = cached(file, start, length)
        came = after is not None and after >= length * _CAME
        device.learn(came)
        if came or stopped():
            return length - before
    device.read = True
    _read(file, start, end, stopped)
    return length - (before or 0)


def cached(file: int, start: int, length: int) -> int | None:
    """How many bytes of a stretch are in the page cache; None where the kernel does not tell."""
    try:
        seen = residency(file, start, length)
    except OSError:
        return None
    return None if isinstance(seen, Unknown) else min(seen.cached, length)


def _advise(file: int, start: int, end: int, step: int, stopped: Stopped) -> None:
    """Ask for all pieces, then wait for each to arrive: a byte of its last page cannot be read before."""
    with _advice(file, os.POSIX_FADV_RANDOM):  # or the bytes read ahead for themselves
        for position in range(start, end, step):
            if stopped():
                return
            os.posix_fadvise(file, position, min(step, end - position), os.POSIX_FADV_WILLNEED)
        for position in range(start, end, step):
            os.pread(file, 1, min(position + step, end) - 1)
            if stopped():
                return


def _read(file: int, start: int, end: int, stopped: Stopped) -> None:
    buffer = memoryview(bytearray(min(_BUFFER, end - start)))
    position = start
    while position < end and not stopped():
        done = os.preadv(file, [buffer[: end - position]], position)
        if not done:  # the file has become shorter
            return
        position += done


@contextlib.contextmanager
def _advice(file: int, kind: int) -> Iterator[None]:
    os.posix_fadvise(file, 0, 0, kind)
    try:
        yield
    finally:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)
