"""How fast weights are read here, measured on parts not in the page cache: up to 240 MiB, in about 4 s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine


@dataclass(frozen=True)
class Speed:
    """Bytes read and the seconds taken."""

    bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Return bytes per second; 0 if nothing was read."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class LoadSpeed:
    """The speed of one folder for each way of reading.

    It is None if the file system does not support the way, or nothing was read in time.

    `mapped` is the speed of loaders that map a file, page fault after page fault; `parallel` of several
    readers through the page cache, and `direct` past it. `warm` is a mapping of cached data. `left` are bytes
    that the trial could not remove from the page cache.
    """

    folder: str
    mapped: Speed | None = None
    parallel: Speed | None = None
    direct: Speed | None = None
    warm: Speed | None = None
    left: int | None = 0

    @property
    def best(self) -> float:
        """Return the highest speed of this path in bytes per second, 0 if nothing was measured."""
        return max((speed.rate for speed in (self.mapped, self.parallel, self.direct) if speed), default=0.0)


@collector(timeout=25)
def load_speed(machine: Machine, files: ModelFiles, storage: ModelStorage) -> LoadSpeed | Unknown:
    """Read some of it in each way, and remove from the page cache what that added."""
    from verl_doctor.toolkit.collectors.model.read_trial import tried  # noqa: PLC0415 - with --deep only

    if storage.in_memory:
        return Absent(f"the weights are in memory already, on {storage.where}")
    paths = [f"{files.folder}/{file.name}" for file in files.loaded if file.size]
    try:
        answer = tried(machine, paths, storage.read_ahead)
    except OSError as error:
        return Unknown(f"the weights in {files.folder} cannot be read: {error.strerror}")
    if isinstance(answer, Unknown):
        return answer
    reported, left = answer
    return LoadSpeed(
        files.folder,
        _speed(reported, "mapped"),
        _speed(reported, "parallel"),
        _speed(reported, "direct"),
        _speed(reported, "again"),
        left,
    )


def _speed(reported: Mapping[str, Any], way: str) -> Speed | None:
    match reported.get(way):
        case [int(amount), float(seconds), _] if amount > 0:
            return Speed(amount, seconds)
    return None
