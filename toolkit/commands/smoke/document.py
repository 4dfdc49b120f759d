"""What a climb of `verl-doctor smoke` has shown as a JSON document, and the words that its views share.

`data/smoke.schema.json` describes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung
from verl_doctor.toolkit.result import JOB, PathVerdict, Report, path_document
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.verdict import STATES, WORDS, Verdict

SCHEMA_VERSION = 1
_MOST = 5  # findings of `check`
_IMPORTS = 1  # the rung that imports what is installed
_TRAINS = 5  # the rung in which the script says what Ray is to have


def verdict(run: SmokeRun, report: Report) -> Verdict:
    """What the climb shows: "failures" where a rung breaks, or `check` finds an error in the script that was named.

    "could_not_check" where there is no verl, where no rung holds, or one was not reached: the time was over, it was stopped,
    something is not known.
    """
    if (run.broken is not None and not _holds_no_job(run, report)) or check_says(run, report):
        return "failures"
    if report.unexamined:
        return "could_not_check"
    tried = [rung for rung in run.rungs if rung.status == "passed"]
    whole = tried and all(rung.status != "not reached" for rung in run.rungs)
    return "ok" if whole else "could_not_check"


def _holds_no_job(run: SmokeRun, report: Report) -> bool:
    """Whether imports break because there is neither verl nor vLLM: that is no fault of a job."""
    broken = run.broken
    return bool(report.unexamined and broken and broken.number == _IMPORTS and not report.target["vllm"])


def path(run: SmokeRun, report: Report) -> PathVerdict:
    """The same of the job as a whole, with the phase in which it fails."""
    state = verdict(run, report)
    striking = check_says(run, report)
    if run.broken is not None and state == "failures":
        striking = [pair for pair in own_findings(report) if pair[0] == run.broken.code] + striking
    codes = tuple(dict.fromkeys(code for code, _ in striking))
    return PathVerdict(JOB, STATES[state], striking[0][1].phase if striking else None, codes)


def document(run: SmokeRun, report: Report) -> dict[str, Any]:
    """Everything, in JSON types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict(run, report),
        "target": dict(report.target),
        "paths": [path_document(path(run, report))],
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
    """What other rules have found that stops a job, when a rung breaks or a script is named: the cause may be among them.

    What dead jobs have left, and what other clusters do, has no part in it: each rung has a Ray of its own.
    """
    number = 0 if run.broken is None else run.broken.number
    strange = ("SMOKE", "LEFT", "RAY") if number < _TRAINS else ("SMOKE", "LEFT")
    return [
        (result.code, finding)
        for result, finding in report.findings()
        if not result.code.startswith(strange) and finding.severity == "error"
    ][:_MOST]


def headline(run: SmokeRun, report: Report) -> tuple[str, str]:
    """The verdict in words, and the sentence behind it."""
    state = verdict(run, report)
    held = [rung for rung in run.rungs if rung.status == "passed"]
    seconds = sum(rung.seconds for rung in run.rungs)
    on = f"on {'the GPUs' if run.device == 'cuda' else 'the CPU'} ({run.chosen_by})"
    if state == "could_not_check" and report.unexamined:
        return WORDS[state], report.unexamined
    if run.broken is not None:
        return WORDS[state], f"rung {run.broken.number}, {run.broken.name}, fails after {seconds:.0f} s, {on}"
    if state == "could_not_check":
        return WORDS[state], f"not everything was tried, {on}"
    omitted = [str(rung.number) for rung in run.rungs if rung.status == "not applicable"]
    rest = f"; not applicable here: {', '.join(omitted)}" if omitted else ""
    climbed = (
        f"{_numbers(held)} {'pass' if len(held) > 1 else 'passes'} after {seconds:.0f} s, {on}{rest}"
        if held
        else ""
    )
    found = [code for code, _ in check_says(run, report)]
    if found:
        return WORDS[
            state
        ], f"verl-doctor check finds {', '.join(found)}{climbed and f', although {climbed}'}"
    return WORDS[state], climbed


def _numbers(rungs: Sequence[SmokeRung]) -> str:
    numbers = [str(rung.number) for rung in rungs]
    return f"rung {numbers[0]}" if len(numbers) == 1 else f"rungs {', '.join(numbers[:-1])} and {numbers[-1]}"


def steps(rung: SmokeRung) -> str:
    """How far it got, in seconds."""
    return ", ".join(f"{step.name} {step.seconds:.1f} s" for step in rung.steps)
