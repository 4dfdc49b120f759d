"""The results of `verl-doctor smoke`, rung by rung.

Only that command provides them: it takes minutes, and starts Ray and vLLM.

As a fact, each kind of failure is a rule like any other: `rules` and `explain` list it, a user can ignore it
with a reason, and it appears in reports with all other findings. Rules need not know how the rungs observed
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.rule import Phase

Status = Literal["passed", "failed", "not applicable", "not reached"]
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Step:
    """One action of a rung, and its duration in seconds. `cpu` is processor seconds, None if not measured."""

    name: str
    seconds: float
    cpu: float | None = None


@dataclass(frozen=True)
class SmokeRung:
    """One rung: how far it got, and in how many seconds.

    See `smoke.rung.Outcome`; `log` is a path, "" if none is kept.
    """

    number: int
    name: str
    status: Status
    seconds: float = 0.0
    cause: str = ""
    remedy: str = ""
    code: str = ""
    lines: tuple[str, ...] = ()
    log: str = ""
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    phase: Phase | None = None


@dataclass(frozen=True)
class SmokeRun:
    """One run of the ladder.

    `chosen_by` is why it ran on this device; `model` is what was loaded, "" for verl-doctor's own tiny model.
    """

    device: Device
    chosen_by: str
    rungs: tuple[SmokeRung, ...]
    model: str = ""

    @property
    def broken(self) -> SmokeRung | None:
        """Return the first rung that breaks."""
        return next((rung for rung in self.rungs if rung.status == "failed"), None)


@collector()
def smoke_run() -> SmokeRun | Absent:
    """Nothing is run here."""
    return Absent("verl-doctor smoke tries it")
