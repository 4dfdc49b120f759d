"""Settings with which the trainer and the rollout's engine fit on one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor

from verl_doctor.checks.shared.configuration import SHARE
from verl_doctor.checks.shared.corrections import settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction
from verl_doctor.toolkit.sources.hydra.written import as_written
from verl_doctor.toolkit.text import in_bytes

GIB = 1 << 30
OVERHEAD = 2 * GIB
"""The contexts of a trainer and an engine, NCCL's buffers and blocks that PyTorch keeps.

These are their sizes when the engine starts: 2.0 GiB on an H200 with verl 0.9.1, vLLM 0.24.0 and one rank.
An estimate: no verdict depends on it, only when the job fails and what to set.
"""
MARGIN = 4 * GIB
"""Memory to leave free in addition, for activations of one row and fragments. Advice only."""
STEP = 0.05


@dataclass(frozen=True)
class Room:
    """The bytes on each GPU.

    `at_start` and `resident` are the trainer's when the engine starts and while the rollout works.

    `least` is what the engine needs to start. `weights` and `states` are what offload moves to the host's
    memory, by the setting that moves it: 0 for what is there already. `host` is the host memory free for one
    GPU, None if unknown.
    """

    whole: int
    share: float
    at_start: float
    resident: float
    least: float
    weights: Mapping[str, float]
    states: Mapping[str, float]
    host: float | None

    def ways(self) -> Iterator[Mapping[str, object]]:
        """Yield settings that make both fit, best first.

        They are an ample smaller share, offload, or what remains of both.
        """
        smaller = self._share(self.at_start, self.resident)
        offload = {key: True for part in (self.states, self.weights) for key, moved in part.items() if moved}
        if not offload or (self.host is not None and self.moved > self.host):
            yield from [{SHARE: smaller}] * (smaller * self.whole > self.least)
            return
        if smaller * self.whole > 2 * self.least:
            yield {SHARE: smaller}
        at_start, resident = self.at_start - sum(self.weights.values()), self.resident - self.moved
        if max(at_start, resident) + self.share * self.whole + OVERHEAD <= self.whole:
            yield offload
        else:
            left = min(self._share(at_start, resident), self.share)
            yield from [{SHARE: left, **offload}] * (left * self.whole > self.least)
        if self.least < smaller * self.whole <= 2 * self.least:
            yield {SHARE: smaller}

    @property
    def moved(self) -> float:
        """The bytes of one GPU that offload moves."""
        return sum(self.weights.values()) + sum(self.states.values())

    def shown(self, way: Mapping[str, object]) -> str:
        """One way as text."""
        words = " ".join(f"{key}={as_written(value)}" for key, value in way.items())
        return ", ".join(filter(None, (f"set {words}", self.why(way))))

    def correction(self, configuration: Configuration | Unknown) -> Correction | None:
        """The correction that sets the best way; None if there is none, or no launch script to edit."""
        way = next(self.ways(), None)
        return (
            None
            if way is None or isinstance(configuration, Unknown)
            else settings(configuration, way, self.why(way))
        )

    def why(self, way: Mapping[str, object]) -> str:
        """What a way does to the trainer's memory; "" if nothing."""
        return (
            f"which moves {in_bytes(self.moved)} of each GPU into the host's memory"
            if way.keys() - {SHARE}
            else ""
        )

    def _share(self, at_start: float, resident: float) -> float:
        free = self.whole - max(at_start + OVERHEAD, resident) - MARGIN
        return round(max(floor(free / self.whole / STEP), 0) * STEP, 2)
