"""Measuring how fast weights are read here: a few pieces that nothing has read yet, in each way in which loaders read.

What the trial brings into the page cache it takes out again, and it touches nothing that is cached: the user's other files
keep their place, and what is measured is the disk. Who takes the pieces' pages out is POSIX_FADV_DONTNEED, for ranges of which not
one page was cached before.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import read_speed
from verl_doctor.toolkit.system.child import ask_child, ending
from verl_doctor.toolkit.system.page_cache import Residency, residency
from verl_doctor.toolkit.text import in_bytes

MIB = 1024 * 1024
_REGION = 40 * MIB  # read in one go: readers that read ahead reach their speed
_MOST_REGIONS = 2  # of each way, which makes 240 MiB for the three
_COLD_WAYS = ("direct", "parallel", "mapped")
# Advice doubles the device's read-ahead. A page fault reads around it, half of that before; elsewhere the next window is under
# way while one is read (mm/filemap.c do_sync_mmap_readahead, mm/readahead.c): one before the region, four behind.
_WINDOWS = 5
_UNTOLD_READ_AHEAD = 8 * MIB  # bytes
_PIECES = 4  # of a region that is read side by side
_LIMIT = 1.0  # seconds of each way
_GRACE = 5.0  # seconds, for a read that takes long and for the process
_LOOKS = 256  # places of which is asked whether they are cached: each opens a file
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Slot:
    """A part of a file that was not in the page cache: a region that is read, and around it what the kernel may fetch as well."""

    path: str
    start: int
    length: int
    before: int

    @property
    def region(self) -> int:
        """Where the region begins."""
        return self.start + self.before


def tried(
    machine: Machine, paths: Sequence[str], read_ahead: int | None
) -> tuple[Mapping[str, Any], int | None] | Unknown:
    """What `probes.read_speed` answers for cold pieces of these files, and how many bytes of them stay in the cache afterwards.

    `read_ahead` is that of the device, in bytes. Where the kernel does not tell what is cached, as of files of another user, pieces are taken as
    they come, and only those ways count whose bytes had to be fetched; what was read ahead of them then stays in the cache, nobody knows how much.
    """
    window = _pages(_UNTOLD_READ_AHEAD if read_ahead is None else read_ahead)
    slots = _spread(list(_slots(paths, window)), _LOOKS)
    cold = _cold(slots)
    there = slots if isinstance(cold, Unknown) else cold
    each = min(_MOST_REGIONS, len(there) // len(_COLD_WAYS))
    if not each:
        return Absent(
            f"less than {in_bytes(len(_COLD_WAYS) * _slot_length(window))} of the weights are out of the page cache, too little to measure a disk"
        )
    chosen = _spread(there, each * len(_COLD_WAYS))
    parts = {way: chosen[number :: len(_COLD_WAYS)] for number, way in enumerate(_COLD_WAYS)}
    reported = _measured(machine, {way: _pieces(way, part) for way, part in parts.items()})
    if not isinstance(cold, Unknown):
        left = sum(map(_taken_out, chosen))
        return reported if isinstance(reported, Unknown) else (reported, left)
    if isinstance(reported, Unknown):
        return reported
    counted = {way: answer for way, answer in reported.items() if _was_fetched(answer)}
    if "mapped" not in counted:
        return Unknown(f"{cold.reason}, and what was read was there already, or nobody counts it")
    for slot in (slot for way in counted if way != "direct" for slot in parts[way]):
        _taken_out(replace(slot, start=slot.region, length=_REGION, before=0))
    return {**counted, "again": reported.get("again")}, None


def _measured(machine: Machine, pieces: Mapping[str, Any]) -> Mapping[str, Any] | Unknown:
    """What the child answers, or why it did not."""
    order = {"seconds": _LIMIT, "pieces": {**pieces, "again": pieces["mapped"]}}
    limit = _LIMIT * (len(pieces) + 1) + _GRACE
    heard = ask_child(machine, sys.executable, read_speed, json.dumps(order), timeout=limit)
    if isinstance(heard, Unknown):
        return heard
    answer, reported = heard
    if not isinstance(reported, dict):
        return Unknown(f"how fast the weights are read could not be measured: {ending(answer, limit)}")
    return reported


def _was_fetched(answer: object) -> bool:
    """Whether nearly all that one way has read came from a disk or a server."""
    match answer:
        case [int(amount), _, int(fetched)]:
            return amount > 0 and fetched >= _NEARLY_ALL * amount
    return False


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _slot_length(window: int) -> int:
    return _REGION + _WINDOWS * window


def _cold(slots: Sequence[Slot]) -> list[Slot] | Unknown:
    """Those of which nothing is cached, or why the kernel does not tell."""
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
    """So many of them, at equal distances: the beginning of a disk is faster than its end."""
    number = min(number, len(slots))
    return [slots[place * len(slots) // number] for place in range(number)]


def _pieces(way: str, slots: Sequence[Slot]) -> list[tuple[str, int, int]]:
    if way == "mapped":
        return [(slot.path, slot.region, _REGION) for slot in slots]
    length = _REGION // _PIECES
    return [(slot.path, slot.region + number * length, length) for slot in slots for number in range(_PIECES)]


def _taken_out(slot: Slot) -> int:
    """Take a slot out of the page cache, and return how much of it stays."""
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
