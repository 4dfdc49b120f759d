"""Measures how fast weights are read here: a few parts not read yet, in each way that loaders use.

The trial removes from the page cache what it added, and touches nothing that was cached: the user's other
files stay cached, and the measurement is of the disk. POSIX_FADV_DONTNEED removes the pages, for ranges of
which no page was cached before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import read_speed
from verl_doctor.toolkit.system.child import ending, run_probe
from verl_doctor.toolkit.system.page_cache import Residency, residency, whole_pages
from verl_doctor.toolkit.text import in_bytes

MIB = 1024 * 1024
_REGION = 40 * MIB  # read in one go: enough for readers with read-ahead to reach full speed
_MOST_REGIONS = 2  # for each way, 240 MiB for all three
_COLD_WAYS = ("direct", "parallel", "mapped")
# Advice doubles the device's read-ahead. A page fault reads around it, half of that before; otherwise the
# next window is in flight while the current one is read (mm/filemap.c do_sync_mmap_readahead,
# mm/readahead.c): one before the region, four after.
_WINDOWS = 5
_DEFAULT_READ_AHEAD = 8 * MIB  # bytes
_PIECES = 4  # of a region, read in parallel
_LIMIT = 1.0  # seconds for each way
_GRACE = 5.0  # seconds, for a slow read and the process
_LOOKS = 256  # places checked for being cached: each opens a file
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Slot:
    """A part of a file not in the page cache: a region to read, and what the kernel may fetch around it."""

    path: str
    start: int
    length: int
    before: int

    @property
    def region(self) -> int:
        """Return where the region begins."""
        return self.start + self.before


def tried(
    machine: Machine, paths: Sequence[str], read_ahead: int | None
) -> tuple[Mapping[str, Any], int | None] | Unknown:
    """Return the result of `probes.read_speed` for uncached parts of these files.

    With it comes how many bytes of them stay in the cache.

    `read_ahead` is the device's, in bytes. If the kernel does not report what is cached, as for files of
    another user, arbitrary parts are read, and only ways whose bytes had to be fetched count; an unknown
    amount of read-ahead then stays in the cache.
    """
    window = whole_pages(_DEFAULT_READ_AHEAD if read_ahead is None else read_ahead)
    slots = _spread(list(_slots(paths, window)), _LOOKS)
    cold = _cold(slots)
    usable = slots if isinstance(cold, Unknown) else cold
    each = min(_MOST_REGIONS, len(usable) // len(_COLD_WAYS))
    if not each:
        return Absent(
            f"less than {in_bytes(len(_COLD_WAYS) * _slot_length(window))} of the weights are out of "
            "the page cache, too little to measure a disk"
        )
    chosen = _spread(usable, each * len(_COLD_WAYS))
    parts = {way: chosen[number :: len(_COLD_WAYS)] for number, way in enumerate(_COLD_WAYS)}
    reported = _measured(machine, {way: _pieces(way, part) for way, part in parts.items()})
    if not isinstance(cold, Unknown):
        left = sum(map(_taken_out, chosen))
        return reported if isinstance(reported, Unknown) else (reported, left)
    if isinstance(reported, Unknown):
        return reported
    counted = {way: answer for way, answer in reported.items() if _was_fetched(answer)}
    if "mapped" not in counted:
        return Unknown(f"{cold.reason}, and what was read was already cached, or is not counted")
    for slot in (slot for way in counted if way != "direct" for slot in parts[way]):
        _taken_out(replace(slot, start=slot.region, length=_REGION, before=0))
    return {**counted, "again": reported.get("again")}, None


def _measured(machine: Machine, pieces: Mapping[str, Any]) -> Mapping[str, Any] | Unknown:
    """Return the child's result, or why it failed."""
    order = {"seconds": _LIMIT, "pieces": {**pieces, "again": pieces["mapped"]}}
    limit = _LIMIT * (len(pieces) + 1) + _GRACE
    result = run_probe(machine, sys.executable, read_speed, json.dumps(order), timeout=limit)
    if isinstance(result, Unknown):
        return result
    answer, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"how fast the weights are read could not be measured: {ending(answer, limit)}")
    return reported


def _was_fetched(answer: object) -> bool:
    """Return whether nearly all that was read in one way came from a disk or a server."""
    match answer:
        case [int(amount), _, int(fetched)]:
            return amount > 0 and fetched >= _NEARLY_ALL * amount
    return False


def _slot_length(window: int) -> int:
    return _REGION + _WINDOWS * window


def _cold(slots: Sequence[Slot]) -> list[Slot] | Unknown:
    """Return the slots of which nothing is cached, or why the kernel does not report it."""
    found = []
    for slot in slots:
        held = _held(slot)
        if isinstance(held, Unknown):
            return held
        if not held.cached:
            found.append(slot)
    return found


def _slots(paths: Sequence[str], window: int) -> Iterator[Slot]:
    length = _slot_length(window)
    for path in paths:
        for start in range(0, Path(path).stat().st_size - length + 1, length):
            yield Slot(path, start, length, window)


def _spread(slots: Sequence[Slot], number: int) -> list[Slot]:
    """Pick this number of slots at equal distances: the beginning of a disk is faster than its end."""
    number = min(number, len(slots))
    return [slots[place * len(slots) // number] for place in range(number)]


def _pieces(way: str, slots: Sequence[Slot]) -> list[tuple[str, int, int]]:
    if way == "mapped":
        return [(slot.path, slot.region, _REGION) for slot in slots]
    length = _REGION // _PIECES
    return [(slot.path, slot.region + number * length, length) for slot in slots for number in range(_PIECES)]


def _taken_out(slot: Slot) -> int:
    """Remove a slot from the page cache, and return how much of it stays."""
    held = _held(slot, take_out=True)
    return 0 if isinstance(held, Unknown) else held.cached


def _held(slot: Slot, *, take_out: bool = False) -> Residency | Unknown:
    file = os.open(slot.path, os.O_RDONLY)
    try:
        if take_out:
            os.posix_fadvise(file, slot.start, slot.length, os.POSIX_FADV_DONTNEED)
        return residency(file, slot.start, slot.length)
    finally:
        os.close(file)
