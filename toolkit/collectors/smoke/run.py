"""What `verl-doctor smoke` has tried, rung by rung. That command alone provides it: it takes minutes, and starts Ray and vLLM.

Why a fact: so each kind of failure is a rule like any other. `rules` and `explain` know it, a user can ignore it with a reason, and whoever reads
reports finds it where all findings are. What the rungs saw is observed, so it is no business of the rules how.
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
    """One thing that a rung has done, and how many seconds it took. `cpu` are those of the processors, None when nobody counted."""

    name: str
    seconds: float
    cpu: float | None = None


@dataclass(frozen=True)
class SmokeRung:
    """One rung: how far it was climbed, and in how many seconds. See `smoke.rung.Outcome`; `log` is a path, "" when none is kept."""

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
    """One climb. `chosen_by` says why it was on this device; `model` is what was loaded, "" for a tiny one of the doctor's."""

    device: Device
    chosen_by: str
    rungs: tuple[SmokeRung, ...]
    model: str = ""

    @property
    def broken(self) -> SmokeRung | None:
        """The first rung that breaks."""
        return next((rung for rung in self.rungs if rung.status == "failed"), None)


@collector()
def smoke_run() -> SmokeRun | Absent:
    """Nothing is tried here."""
    return Absent("verl-doctor smoke tries it")
