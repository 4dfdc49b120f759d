"""Shared by the rules about the smoke test: each is about one kind of failure, by the code that its rung assigns."""

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
    fine = SmokeRung(1, "imports and files", "passed", 4.0)
    broken = SmokeRung(number, name, "failed", 9.0, cause, code=code)
    return (
        Example("every rung passes", (SmokeRun("cpu", "--cpu", (fine,)),)),
        Example(
            "it fails in another way",
            (SmokeRun("cpu", "--cpu", (SmokeRung(9, "other", "failed", code="SMOKE199"),)),),
        ),
        Example("it fails in this way", (SmokeRun("cuda", "a GPU", (fine, broken)),), cause),
    )
