"""How fast the weights of the model are read here, measured with pieces that are not in the page cache: up to 240 MiB, in about 4 s."""

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
    """So many bytes were read in so many seconds."""

    bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second; 0 when nothing was read."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class LoadSpeed:
    """One folder's speed, for each way of reading; None: the file system cannot, or it came to nothing in time.

    `mapped` is what loaders get that map a file, page fault after page fault; `parallel` what several readers get through the page
    cache, and `direct` past it. `warm` is a mapping of what is in memory. `left` are bytes that the trial could not take out of the
    page cache again.
    """

    folder: str
    mapped: Speed | None = None
    parallel: Speed | None = None
    direct: Speed | None = None
    warm: Speed | None = None
    left: int | None = 0

    @property
    def best(self) -> float:
        """The most bytes per second that this path gives to anybody, 0 where nothing was measured."""
        return max((speed.rate for speed in (self.mapped, self.parallel, self.direct) if speed), default=0.0)


@collector(timeout=25)
def load_speed(machine: Machine, files: ModelFiles, storage: ModelStorage) -> LoadSpeed | Unknown:
    """Read a little of it in each way, and take out of the page cache what that brought there."""
    from verl_doctor.toolkit.collectors.model.read_trial import tried  # noqa: PLC0415 - with --deep only

    if storage.in_memory:
        return Absent(f"the weights lie in memory already, on {storage.where}")
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
