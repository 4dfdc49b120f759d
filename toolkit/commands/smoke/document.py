"""The results of `verl-doctor smoke` as a JSON document, and the phrases that its views share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from verl_doctor.toolkit.collectors.smoke.run import Device, SmokeRun, SmokeRung, Status
from verl_doctor.toolkit.json_document import Keyword, plain
from verl_doctor.toolkit.render.document import PathDocument, path_document
from verl_doctor.toolkit.result import JOB, PathVerdict, Report
from verl_doctor.toolkit.rule import Finding, Phase, Severity
from verl_doctor.toolkit.verdict import STATES, WORDS, Verdict

_MOST = 5  # findings of `check`
_IMPORTS = 1  # the rung that imports what is installed
_TRAINS = 5  # the rung for which the script sets what Ray gets


class StepDocument(TypedDict):
    """A part of a rung."""

    name: str
    seconds: float
    cpu: Annotated[float | None, "processor seconds; null if not measured"]


class RungDocument(TypedDict):
    """One rung."""

    number: Annotated[int, Keyword("minimum", 1)]
    name: str
    status: Status
    seconds: float
    cause: Annotated[str, "the first cause, or why the rung was not tried"]
    remedy: str
    code: Annotated[str, "the rule that describes this failure"]
    lines: Annotated[list[str], "the lines of the log that show the cause"]
    log: Annotated[str, "a log file that was kept; empty for none"]
    steps: Annotated[list[StepDocument], "what was done"]
    notes: list[str]
    phase: Annotated[Phase | None, "when a job would fail"]


class SmokeFindingDocument(TypedDict):
    """A finding, in short."""

    code: str
    message: str
    severity: Severity | None
    remedy: str
    found: str
    read_from: str


class SmokeDocument(TypedDict):
    """What works on this machine."""

    schema_version: Literal[1]
    verdict: Verdict
    target: Annotated[dict[str, Any], "what was examined, as in the report of check"]
    paths: Annotated[list[PathDocument], "the verdict on the job as a whole, as in the report of check"]
    device: Device
    chosen_by: Annotated[str, "why it ran on this device"]
    model: Annotated[str, "the user's own model; empty for verl-doctor's tiny one"]
    rungs: Annotated[list[RungDocument], "from the bottom up; none is tried above one that fails"]
    findings: Annotated[list[SmokeFindingDocument], "the findings of the SMOKE rules"]
    check_says: Annotated[
        list[SmokeFindingDocument], "if a rung fails: findings of other rules that stop a job"
    ]
    seconds: Annotated[float, "for all rungs together"]


def verdict(run: SmokeRun, report: Report) -> Verdict:
    """Return the verdict: "failures" if a rung breaks, or `check` finds an error in the named script.

    "could_not_check" if there is no verl, no rung holds, or a rung was not reached: the time was over, the
    test was stopped, or a fact is unknown.
    """
    if (run.broken is not None and not _holds_no_job(run, report)) or other_findings(run, report):
        return "failures"
    if report.unexamined:
        return "could_not_check"
    tried = [rung for rung in run.rungs if rung.status == "passed"]
    whole = tried and all(rung.status != "not reached" for rung in run.rungs)
    return "ok" if whole else "could_not_check"


def _holds_no_job(run: SmokeRun, report: Report) -> bool:
    """Return whether imports break because neither verl nor vLLM is installed, which is no fault of a job."""
    broken = run.broken
    return bool(report.unexamined and broken and broken.number == _IMPORTS and not report.target["vllm"])


def path(run: SmokeRun, report: Report) -> PathVerdict:
    """Return the same for the job as a whole, with the phase in which it fails."""
    state = verdict(run, report)
    striking = other_findings(run, report)
    if run.broken is not None and state == "failures":
        striking = [pair for pair in own_findings(report) if pair[0] == run.broken.code] + striking
    codes = tuple(dict.fromkeys(code for code, _ in striking))
    return PathVerdict(JOB, STATES[state], striking[0][1].phase if striking else None, codes)


def document(run: SmokeRun, report: Report) -> SmokeDocument:
    """Return everything in JSON types."""
    return {
        "schema_version": 1,
        "verdict": verdict(run, report),
        "target": dict(report.target),
        "paths": [path_document(path(run, report))],
        "device": run.device,
        "chosen_by": run.chosen_by,
        "model": run.model,
        "rungs": [plain(rung) for rung in run.rungs],
        "findings": [_finding(code, finding) for code, finding in own_findings(report)],
        "check_says": [_finding(code, finding) for code, finding in other_findings(run, report)],
        "seconds": round(sum(rung.seconds for rung in run.rungs), 3),
    }


def _finding(code: str, finding: Finding) -> SmokeFindingDocument:
    return {
        "code": code,
        "message": finding.message,
        "severity": finding.severity,
        "remedy": finding.remedy,
        "found": finding.evidence.found,
        "read_from": finding.evidence.read_from,
    }


def own_findings(report: Report) -> list[tuple[str, Finding]]:
    """Return the findings of the rules about the climb."""
    return [
        (result.code, finding) for result, finding in report.findings() if result.code.startswith("SMOKE")
    ]


def other_findings(run: SmokeRun, report: Report) -> list[tuple[str, Finding]]:
    """Return what other rules found that stops a job, if a rung breaks or a script is named: possible causes.

    Leftovers of dead jobs and other clusters are excluded: each rung starts its own Ray.
    """
    number = 0 if run.broken is None else run.broken.number
    strange = ("SMOKE", "LEFT", "RAY") if number < _TRAINS else ("SMOKE", "LEFT")
    return [
        (result.code, finding)
        for result, finding in report.findings()
        if not result.code.startswith(strange) and finding.severity == "error"
    ][:_MOST]


def headline(run: SmokeRun, report: Report) -> tuple[str, str]:
    """Return the verdict as a word and a sentence."""
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
    found = [code for code, _ in other_findings(run, report)]
    if found:
        return WORDS[
            state
        ], f"verl-doctor check finds {', '.join(dict.fromkeys(found))}{climbed and f', although {climbed}'}"
    return WORDS[state], climbed


def _numbers(rungs: Sequence[SmokeRung]) -> str:
    numbers = [str(rung.number) for rung in rungs]
    return f"rung {numbers[0]}" if len(numbers) == 1 else f"rungs {', '.join(numbers[:-1])} and {numbers[-1]}"


def steps(rung: SmokeRung) -> str:
    """Return the steps that were reached, in seconds."""
    return ", ".join(f"{step.name} {step.seconds:.1f} s" for step in rung.steps)
