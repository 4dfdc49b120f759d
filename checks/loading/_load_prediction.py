"""How long a job reads weights on one node, predicted from measured speeds: what the rules about slow loading compute with.

The parts of a job read one after the other: actor, reference, vLLM. The processes of a part read the same pages side by side, so the
first part brings what is cold into the page cache for all; a mapping of what is there runs at memory's speed in each process, where
there is a CPU for each. That the weights are also converted and copied to a GPU is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, Speed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.text import in_bytes


@dataclass(frozen=True)
class Reading:
    """Seconds: `cold` as things are now, `ahead` if what is cold came as fast as the path gives it, `warm` if nothing were cold."""

    cold: float
    ahead: float
    warm: float

    @property
    def gain(self) -> float:
        """What reading ahead saves."""
        return self.cold - self.ahead


def reading(storage: ModelStorage, speed: LoadSpeed, times: int, *, fits: bool) -> Reading | None:
    """Of a job whose parts read the weights so many `times`; None where nothing was measured to tell it from.

    Where the weights do not fit into memory (`fits`), each part reads all of them from the disk.
    """
    mapped = rate(speed.mapped)
    if not mapped or speed.warm is None:
        return None
    again = max(rate(speed.warm), speed.best)  # memory is no slower than the disk: what says so was disturbed
    warm = times * storage.bytes / again
    from_disk = storage.cold if fits else times * storage.bytes
    from_memory = (times * storage.bytes - from_disk) / again
    return Reading(from_disk / mapped + from_memory, from_disk / speed.best + from_memory, warm)


def rate(speed: Speed | None) -> float:
    """Bytes per second; 0 where nothing was measured."""
    return speed.rate if speed else 0.0


def in_words(speed: LoadSpeed) -> str:
    """The measured speeds, one after the other."""
    ways = (
        ("mapped", speed.mapped),
        ("side by side", speed.parallel),
        ("past the page cache", speed.direct),
        ("from memory", speed.warm),
    )
    return ", ".join(
        f"{way} {in_bytes(rate(speed))}/s" if speed else f"{way} not possible" for way, speed in ways
    )


def in_seconds(seconds: float) -> str:
    """A duration as people say it: "3.5 s", "40 s", "12 min"."""
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
