"""Loads files into the page cache before a job reads them.

Checks what is cached and what fits, reads, and verifies.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import file_system_of
from verl_doctor.toolkit.warm.files import Chosen, LeftOut, WarmFile
from verl_doctor.toolkit.warm.reading import PAGE, STRETCH, Device, ahead_of, cached, fetch, parts_with_data
from verl_doctor.toolkit.warm.room import UNDETERMINED, Room

_THREADS = 8  # measured in tests/bench/WARM.md
_STEP = 0.1  # seconds between two checks of the work
_ENDING = 3.0  # seconds for threads to end after a request to stop; one may hang in a file system
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


@dataclass(frozen=True)
class Mount:
    """The file system of some of the files, as listed by the kernel.

    `shared` means that other machines also read from it, `of_kernel` that its files are the kernel's own and
    use no memory.
    """

    source: str
    kind: str
    shared: bool = False
    of_kernel: bool = False

    @property
    def in_memory(self) -> bool:
        """Whether its files are always in memory."""
        return self.kind in _IN_MEMORY


@dataclass(frozen=True)
class Row:
    """One file. `data` is its size on disk, `wanted` how many bytes from its beginning should be resident.

    `before` and `after` are the resident bytes of `wanted`, None if the kernel does not report them. `passed`
    were resident at some time in this run. `trouble` is why the file was skipped.
    """

    file: WarmFile
    data: int = 0
    wanted: int = 0
    before: int | None = None
    after: int | None = None
    passed: int = 0
    trouble: str = ""

    @property
    def missing(self) -> int:
        """The requested bytes that were not resident in the beginning."""
        return self.wanted - (self.before or 0)

    @property
    def lost(self) -> int:
        """The bytes that were resident in this run and no longer are."""
        return 0 if self.after is None else max(0, self.passed - self.after)


@dataclass(frozen=True)
class Plan:
    """What would be read. `limit` is the user's, in bytes."""

    rows: tuple[Row, ...]
    mounts: tuple[Mount, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    room: Room = UNDETERMINED
    limit: int | None = None

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(row.data for row in self.rows)

    @property
    def wanted(self) -> int:
        """The bytes that should be resident."""
        return sum(row.wanted for row in self.rows)

    @property
    def missing(self) -> int:
        """The bytes that must be read for that."""
        return sum(row.missing for row in self.rows)


@dataclass(frozen=True)
class Warmed:
    """The result of a plan; without `done`, nothing had to be done. `ended` is why it ended early."""

    plan: Plan
    done: bool = False
    read: int = 0
    seconds: float = 0.0
    ended: str = ""

    @property
    def resident(self) -> int | None:
        """The requested bytes that are resident now; None if the kernel does not report some."""
        sizes = [row.after if self.done else row.before for row in self.plan.rows if row.wanted]
        return None if None in sizes else sum(size or 0 for size in sizes)


def survey(machine: Machine, chosen: Chosen, room: Room, limit: int | None) -> Plan:
    """Check what is resident, and allot the room, first to the files that a loader reads first."""
    left = min((size for size in (room.size, limit) if size is not None), default=None)
    mounts: dict[int, Mount] = {}
    rows = []
    for file in chosen.files:
        if file.device not in mounts:
            mounts[file.device] = _mount_of(machine, file.path)
        if mounts[file.device].of_kernel:
            rows.append(Row(file, trouble="it is the kernel's own"))
            continue
        row = _examined(file)
        wanted = row.data
        if left is not None and not mounts[file.device].in_memory:
            wanted = min(row.data, left // PAGE * PAGE)
            left -= wanted
        rows.append(row if wanted == row.data else _examined(file, wanted))
    found = tuple(dict.fromkeys(mounts.values()))
    return Plan(tuple(rows), found, chosen.left_out, room, limit)


def _mount_of(machine: Machine, path: str) -> Mount:
    system = file_system_of(machine, path)
    return (
        Mount("", "")
        if system is None
        else Mount(system.device, system.kind, system.shared, system.of_kernel)
    )


def _examined(file: WarmFile, wanted: int | None = None) -> Row:
    """Return how much of a file has data, and how much of the requested part is resident."""
    try:
        with _opened(file) as number:
            parts = list(parts_with_data(number, file.size))
            data = sum(end - start for start, end in parts)
            row = Row(file, data, data if wanted is None else wanted)
            return replace(row, before=_resident(number, _first(parts, row.wanted)))
    except OSError as error:
        return Row(file, file.size, trouble=error.strerror or str(error))


def _first(parts: Sequence[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that hold this many bytes of data from its beginning."""
    for start, end in parts:
        if wanted <= 0:
            return
        yield start, min(end, start + wanted)
        wanted -= end - start


def _resident(number: int, parts: Iterator[tuple[int, int]]) -> int | None:
    found = [cached(number, start, end - start) for start, end in parts]
    return None if None in found else sum(size or 0 for size in found)


@contextlib.contextmanager
def _opened(file: WarmFile) -> Iterator[int]:
    """Open a file, if it is still the chosen one. Raises OSError."""
    number = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        seen = os.fstat(number)
        if (seen.st_dev, seen.st_ino) != (file.device, file.inode):
            raise OSError(0, "it was replaced by another file")
        yield number
    finally:
        os.close(number)


@dataclass(frozen=True)
class Moment:
    """The progress: how many of the missing bytes are loaded, and the seconds so far."""

    brought: int
    missing: int
    seconds: float

    @property
    def speed(self) -> float:
        """Bytes per second."""
        return self.brought / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """The seconds left at this speed; None before anything was loaded."""
        return max(0, self.missing - self.brought) / self.speed if self.brought else None


def warm(
    machine: Machine,
    plan: Plan,
    why_stop: Callable[[], str],
    watch: Callable[[Moment], None] = lambda _: None,
) -> Warmed:
    """Read what is missing, then check what is resident. What was evicted meanwhile is read once more.

    `why_stop` is called often, and returns a reason to stop or "".
    """
    begun = time.monotonic()
    read, rows = 0, plan.rows
    for _ in range(2):
        work = _Work(machine, rows, why_stop)

        def report_progress(brought: int, before: int = read) -> None:
            watch(Moment(before + brought, max(plan.missing, before + brought), time.monotonic() - begun))

        ended = work.run(report_progress)
        read += work.brought
        rows = tuple(work.after(index) if ended else work.unproven(index) for index in range(len(rows)))
        if why_stop() or not any(row.lost for row in rows):
            break
    return Warmed(replace(plan, rows=rows), True, read, time.monotonic() - begun, why_stop())


class _Work:
    """Threads that process one stretch after another."""

    def __init__(self, machine: Machine, rows: Sequence[Row], why_stop: Callable[[], str]) -> None:
        self.brought = 0
        self._rows = rows
        self._why_stop = why_stop
        self._lock = threading.Lock()
        self._stretches: Iterator[tuple[int, int, int]] = self._all_stretches()
        self._passed = [0] * len(rows)
        self._trouble = [row.trouble for row in rows]
        ahead = {row.file.device: ahead_of(machine, row.file.device) for row in rows}
        self._devices = {device: Device(size) for device, size in ahead.items()}

    def run(self, report_progress: Callable[[int], None]) -> bool:
        """Work until everything is loaded or a stop is requested.

        Return False if threads hang in a file system even then.
        """
        threads = [threading.Thread(target=self._work, name="warm", daemon=True) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        stopped = 0.0
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_STEP / _THREADS)
            report_progress(self.brought)
            if self._why_stop():
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > _ENDING:
                    return False
        return True

    def after(self, index: int) -> Row:
        """Return the result for one file."""
        row = self._rows[index]
        if self._trouble[index]:
            return replace(row, after=0, passed=0, trouble=self._trouble[index])
        seen = _examined(row.file, row.wanted)
        shrunk = os.path.exists(row.file.path) and seen.data < row.wanted
        trouble = seen.trouble or ("it was truncated meanwhile" if shrunk else "")
        return replace(row, after=seen.before, passed=self._passed[index], trouble=trouble)

    def unproven(self, index: int) -> Row:
        """Return what is known about one file without examining it again."""
        row = self._rows[index]
        hung = self._passed[index] < row.wanted
        return replace(
            row,
            passed=self._passed[index],
            trouble="its file system does not respond" if hung else row.trouble,
        )

    def _work(self) -> None:
        while not self._why_stop():
            with self._lock:
                piece = next(self._stretches, None)
            if piece is None:
                return
            index, start, end = piece
            if not self._trouble[index]:
                self._fetch(index, start, end)

    def _fetch(self, index: int, start: int, end: int) -> None:
        row = self._rows[index]
        try:
            with _opened(row.file) as number:
                resident = cached(number, start, end - start) if row.before or row.after else 0
                if resident != end - start:
                    fetch(number, start, end, self._devices[row.file.device], self._is_stopped)
        except OSError as error:
            self._trouble[index] = error.strerror or str(error)
            return
        if self._is_stopped():
            return
        with self._lock:
            self.brought += end - start - (resident or 0)
            self._passed[index] += end - start

    def _is_stopped(self) -> bool:
        return bool(self._why_stop())

    def _all_stretches(self) -> Iterator[tuple[int, int, int]]:
        """Yield the stretches of all files, in order.

        A file that cannot be opened fails when its turn comes.
        """
        for index, row in enumerate(self._rows):
            if not row.wanted or row.trouble:
                continue
            try:
                with _opened(row.file) as number:
                    parts = list(_first(list(parts_with_data(number, row.file.size)), row.wanted))
            except OSError:
                parts = [(0, row.wanted)]
            for start, end in parts:
                for position in range(start, end, STRETCH):
                    yield index, position, min(position + STRETCH, end)
