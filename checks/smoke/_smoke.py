"""Shared by the smoke test rules, each about one kind of failure, by the code that its rung assigns."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject


def broken_by(code: str, run: SmokeRun) -> Iterator[Finding]:
    """Yield a finding for the rung that fails, if its failure is of this kind."""
    rung = run.broken
    if rung is not None and rung.code == code:
        yield Finding(
            f"rung {rung.number}, {rung.name}, fails: {rung.cause}",
            Evidence("; ".join(line.strip() for line in rung.lines), read_from=rung.log),
            Location(rung.log) if rung.log else None,
            subject=Subject("rung", rung.name),
            remedy=rung.remedy,
            phase=rung.phase,
        )


def examples_of(code: str, number: int, name: str, cause: str) -> tuple[Example, ...]:
    """One run that fails in this way, one that fails otherwise, and one that passes."""
    fine = SmokeRung(number=1, name="imports and files", status="passed", seconds=4.0)
    broken = SmokeRung(number=number, name=name, status="failed", seconds=9.0, cause=cause, code=code)
    return (
        Example("every rung passes", (SmokeRun(device="cpu", chosen_by="--cpu", rungs=(fine,)),)),
        Example(
            "it fails in another way",
            (
                SmokeRun(
                    device="cpu",
                    chosen_by="--cpu",
                    rungs=(SmokeRung(number=9, name="other", status="failed", code="SMOKE199"),),
                ),
            ),
        ),
        Example(
            "it fails in this way", (SmokeRun(device="cuda", chosen_by="a GPU", rungs=(fine, broken)),), cause
        ),
    )
