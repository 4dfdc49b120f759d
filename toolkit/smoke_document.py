"""What a climb of `verl-doctor smoke` has shown as a JSON document, and the words that its views share.

`data/smoke.schema.json` describes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit.fact_smoke_run import SmokeRun, SmokeRung
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Finding

SCHEMA_VERSION = 1
_VERDICTS = {0: "ok", 1: "failures", 3: "could_not_check"}
_MOST = 5  # findings of `check`
_TRAINS = 5  # the rung in which the script says what Ray is to have


def exit_code(run: SmokeRun) -> int:
    """0 all rungs that apply hold, 1 one breaks, 3 none holds, or one was not reached: the time was over, it was stopped, something is not known."""
    if run.broken is not None:
        return 1
    tried = [rung for rung in run.rungs if rung.status == "passed"]
    return 0 if tried and all(rung.status != "not reached" for rung in run.rungs) else 3


def document(run: SmokeRun, report: Report) -> dict[str, Any]:
    """Everything, in JSON types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": _VERDICTS[exit_code(run)],
        "target": dict(report.target),
        "device": run.device,
        "chosen_by": run.chosen_by,
        "model": run.model,
        "rungs": [
            {
                **asdict(rung),
                **{name: list(getattr(rung, name)) for name in ("lines", "notes")},
                "steps": [asdict(step) for step in rung.steps],
            }
            for rung in run.rungs
        ],
        "findings": [_finding(code, finding) for code, finding in own_findings(report)],
        "check_says": [_finding(code, finding) for code, finding in check_says(run, report)],
        "seconds": round(sum(rung.seconds for rung in run.rungs), 3),
    }


def _finding(code: str, finding: Finding) -> dict[str, Any]:
    return {
        "code": code,
        "message": finding.message,
        "severity": finding.severity,
        "remedy": finding.remedy,
        "found": finding.evidence.found,
        "read_from": finding.evidence.read_from,
    }


def own_findings(report: Report) -> list[tuple[str, Finding]]:
    """What the rules about the climb say."""
    return [
        (result.code, finding) for result, finding in report.findings() if result.code.startswith("SMOKE")
    ]


def check_says(run: SmokeRun, report: Report) -> list[tuple[str, Finding]]:
    """What other rules have found that stops a job, when a rung breaks: the cause may be among them.

    What dead jobs have left, and what other clusters do, has no part in it: each rung has a Ray of its own.
    """
    number = 0 if run.broken is None else run.broken.number
    strange = ("SMOKE", "LEFT", "RAY") if number < _TRAINS else ("SMOKE", "LEFT")
    return [
        (result.code, finding)
        for result, finding in report.findings()
        if not result.code.startswith(strange) and finding.severity == "error"
    ][:_MOST]


def headline(run: SmokeRun) -> tuple[str, str]:
    """One word, and the sentence behind it."""
    held = [rung for rung in run.rungs if rung.status == "passed"]
    seconds = sum(rung.seconds for rung in run.rungs)
    on = f"on {'the GPUs' if run.device == 'cuda' else 'the CPU'} ({run.chosen_by})"
    if run.broken is not None:
        return "FAIL", f"rung {run.broken.number}, {run.broken.name}, breaks after {seconds:.0f} s, {on}"
    if exit_code(run):
        return "NOT TOLD", f"not all was tried, {on}"
    omitted = [str(rung.number) for rung in run.rungs if rung.status == "not applicable"]
    rest = f"; not applicable here: {', '.join(omitted)}" if omitted else ""
    return "OK", f"{_numbers(held)} {'hold' if len(held) > 1 else 'holds'} after {seconds:.0f} s, {on}{rest}"


def _numbers(rungs: Sequence[SmokeRung]) -> str:
    numbers = [str(rung.number) for rung in rungs]
    return f"rung {numbers[0]}" if len(numbers) == 1 else f"rungs {', '.join(numbers[:-1])} and {numbers[-1]}"


def steps(rung: SmokeRung) -> str:
    """How far it got, in seconds."""
    return ", ".join(f"{step.name} {step.seconds:.1f} s" for step in rung.steps)
