"""POSIX shared memory: the size of its file system, and what NCCL, vLLM and Python's multiprocessing left there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_FOLDER = "/dev/shm"  # noqa: S108 - it is looked at, not written to
# NCCL, multiprocessing.shared_memory (vLLM's queues), its semaphores, torch's tensors, verl's weights.
_SEGMENT = re.compile(r"(?:nccl-|psm_|sem\.|torch_|verl_weights_).*")
_MOST_FILES = 10_000


@dataclass(frozen=True)
class SharedMemory:
    """The file system on /dev/shm, in bytes: `free` is as far as this user may fill it.

    `stale` are segments of this user that no process seen from here has open or mapped, and `stale_bytes` the memory that they
    hold; None when nobody looked, as there was room enough.
    """

    size: int
    free: int
    stale: int | None = None
    stale_bytes: int | None = None


@collector(timeout=8)
def shared_memory(machine: Machine) -> SharedMemory | Unknown:
    """Ask for the space, and look for what nobody holds any more when half of it is taken."""
    folder = machine.at(_FOLDER)
    if not os.path.isdir(folder):
        return Absent("this system has no /dev/shm")
    try:
        space = os.statvfs(folder)
        size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        segments = dict(_segments(folder)) if free < size / 2 else {}
    except OSError as error:
        return Unknown(f"{_FOLDER} cannot be read: {error.strerror}")
    if free >= size / 2:
        return SharedMemory(size, free)
    left = segments.keys() - _held(machine, set(segments)) if segments else set()
    return SharedMemory(size, free, len(left), sum(segments[name] for name in left))


def _segments(folder: Path) -> Iterator[tuple[str, int]]:
    """Names of this user's segments, and the memory that they take."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(_MOST_FILES), entries, strict=False):
            about = entry.stat(follow_symlinks=False)
            if _SEGMENT.fullmatch(entry.name) and about.st_uid == os.geteuid():
                yield entry.name, about.st_blocks * 512


def _held(machine: Machine, names: set[str]) -> set[str]:
    """Those that some process has open or mapped. Processes that may not be looked into are not of this user."""
    held = set()
    pattern = re.compile(rf"{_FOLDER}/(\S+)")
    for process in machine.at("/proc").glob("[0-9]*"):
        held |= set(pattern.findall(machine.read(f"/proc/{process.name}/maps") or ""))
        held |= {Path(link).name for link in _links(process / "fd") if link.startswith(f"{_FOLDER}/")}
    return held & names


def _links(folder: Path) -> Iterator[str]:
    try:
        for entry in os.scandir(folder):
            yield os.readlink(entry.path)  # noqa: PTH115 - a name such as "socket:[1]" is no path
    except OSError:
        return
