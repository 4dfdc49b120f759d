"""Predict from measured speeds how long a job reads weights on one node, for the rules about slow loading.

The parts of a job read one after the other: actor, reference, vLLM. The processes of a part read the same
pages at the same time, so the first part brings cold data into the page cache for all; mapping cached data
runs at memory speed in each process that has a CPU. Converting the weights and copying them to a GPU is not
included.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, Speed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.text import in_bytes


@dataclass(frozen=True)
class Reading:
    """Seconds: `cold` now, `ahead` if cold data came as fast as the path allows, `warm` with nothing cold."""

    cold: float
    ahead: float
    warm: float

    @property
    def gain(self) -> float:
        """The seconds that reading ahead saves."""
        return self.cold - self.ahead


def reading(storage: ModelStorage, speed: LoadSpeed, times: int, *, fits: bool) -> Reading | None:
    """Predict for a job with `times` parts that read the weights; None without measurements.

    Unless the weights fit into memory (`fits`), each part reads all of them from the disk.
    """
    mapped = rate(speed.mapped)
    if not mapped or speed.warm is None:
        return None
    again = max(
        rate(speed.warm), speed.best
    )  # memory is not slower than the disk: such a measurement was disturbed
    warm = times * storage.bytes / again
    from_disk = storage.cold if fits else times * storage.bytes
    from_memory = (times * storage.bytes - from_disk) / again
    return Reading(from_disk / mapped + from_memory, from_disk / speed.best + from_memory, warm)


def rate(speed: Speed | None) -> float:
    """Bytes per second; 0 without a measurement."""
    return speed.rate if speed else 0.0


def in_words(speed: LoadSpeed) -> str:
    """The measured speeds, as text."""
    ways = (
        ("mapped", speed.mapped),
        ("in parallel", speed.parallel),
        ("bypassing the page cache", speed.direct),
        ("from memory", speed.warm),
    )
    return ", ".join(
        f"{way} {in_bytes(rate(speed))}/s" if speed else f"{way} not possible" for way, speed in ways
    )


def in_seconds(seconds: float) -> str:
    """A readable duration: "3.5 s", "40 s", "12 min"."""
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
