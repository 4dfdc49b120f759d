"""The findings of `verl-doctor logs` as a JSON document."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.json_document import Code, Count, Keyword, Line
from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.blame import Fault
from verl_doctor.toolkit.logs.causes import fault_of, name_of, place_in_job, remedy_of
from verl_doctor.toolkit.logs.confirming import confirmation, confirming
from verl_doctor.toolkit.logs.lines import shown, shown_together
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.signature import Kind
from verl_doctor.toolkit.logs.timeline.timeline import How, Span, Timeline
from verl_doctor.toolkit.result import STATUSES
from verl_doctor.toolkit.rule import Phase


class TargetDocument(TypedDict):
    """What was read."""

    files: list[str]
    bytes: Count
    lines: Count


class EvidenceDocument(TypedDict):
    """The lines that prove a cause."""

    found: str
    wanted: str
    read_from: Annotated[str, "FILE:LINE"]
    lines: list[str]
    process: str


class LocationDocument(TypedDict):
    """A line of a log."""

    path: str
    line: Line


class SubjectDocument(TypedDict):
    """What an exception names."""

    kind: Literal["setting", "file"]
    name: str
    place: Annotated[str, "where the exception was raised"]


class FixDocument(TypedDict):
    """The fix that repairs a fault."""

    id: str
    safety: str


class FindingDocument(TypedDict):
    """A cause with its evidence."""

    message: str
    severity: Literal["error"]
    phase: Annotated[Phase | None, "when it struck the job; null if the log does not show it"]
    evidence: EvidenceDocument
    location: LocationDocument
    subject: Annotated[SubjectDocument | None, "the settings or the file that the exception names"]
    remedy: str
    confirm: Annotated[str, "the command that confirms it on this machine; empty if no rule detects it"]
    node: None
    fix: FixDocument | None


class ResultDocument(TypedDict):
    """A cause in the form of a rule's result."""

    code: Code
    title: str
    fault: Annotated[
        Fault | Literal["environment"],
        (
            "what is at fault: the environment, the job's configuration, its own code, its launch script, "
            "or a program that raised an exception which names no setting"
        ),
    ]
    status: Literal["fail"]
    reason: Annotated[str, "with --verify: the result of the rule on this machine"]
    seconds: float
    findings: Annotated[list[FindingDocument], Keyword("minItems", 1)]


class ErrorDocument(TypedDict):
    """An error in a log."""

    words: str
    code: str | None
    title: str
    kind: Kind | Literal["unknown"]
    path: str
    line: Line
    process: str
    lines: list[str]
    times: Annotated[int, Keyword("minimum", 1)]
    place: Annotated[str, "the place in the job's own code that raised it; empty if it is not there"]
    then: Annotated[str, "what the run did instead; empty if the log does not show it"]


class ProofDocument(TypedDict):
    """A line that proves a span."""

    path: str
    line: Line
    words: str


class SpanDocument(TypedDict):
    """A part of the start-up."""

    phase: str
    seconds: Annotated[float | None, "null if unknown"]
    start: Annotated[float | None, "null if none of its lines has a time"]
    how: Annotated[
        How,
        (
            "told: a line holds the duration; between: from the times of two lines; silence: from the last "
            "line before it to its first own line"
        ),
    ]
    is_open: Annotated[bool, "the log ends before it does, so it took at least this long"]
    parts: Annotated[dict[str, float | None], "the parts of a step, in seconds"]
    proof: list[ProofDocument]


class WorkerDocument(TypedDict):
    """The start-up of one process."""

    name: str
    node: Annotated[str, "its address, if known"]
    spans: list[SpanDocument]


class MomentDocument(TypedDict):
    """An event."""

    what: str
    at: float | None
    path: str
    line: Line


class TimelineDocument(TypedDict):
    """Where the time went until the first training step, in seconds since the first line with a time."""

    seconds: Annotated[float | None, "until the end of the first step, or of the logged part of the start"]
    has_step: Annotated[bool, "whether a first step was logged"]
    workers: list[WorkerDocument]
    moments: list[MomentDocument]
    notes: list[str]


class LogsDocument(TypedDict):
    """The first cause of a failure."""

    schema_version: Literal[1]
    verdict: Annotated[
        Literal["ok", "failures", "not_determined"],
        (
            "ok: nothing failed; failures: a cause was found; not_determined: something failed, or may "
            "have, for an unknown reason"
        ),
    ]
    target: TargetDocument
    results: Annotated[
        list[ResultDocument],
        "the causes, the first one first; or the exception that shows where the fault lies",
    ]
    summary: dict[str, int]
    first_error: Annotated[ErrorDocument | None, "the first error, if no cause was found"]
    also: Annotated[list[ErrorDocument], "other faults in the logs"]
    consequences: list[ErrorDocument]
    hints: Annotated[list[ErrorDocument], "complaints that need not have stopped the run"]
    notes: Annotated[list[str], "what was skipped"]
    timeline: TimelineDocument
    seconds: float


def document(answer: Answer) -> LogsDocument:
    """Return everything in JSON types, the first cause first."""
    reading = answer.reading
    results = [_result(cause, answer) for cause in reading.causes or filter(None, [reading.first])]
    return {
        "schema_version": 1,
        "verdict": answer.verdict,
        "target": {"files": list(answer.files), "bytes": answer.size, "lines": reading.total},
        "results": results,
        "summary": {status: len(results) if status == "fail" else 0 for status in STATUSES},
        "first_error": None if reading.error is None else _error_document(reading.error),
        "also": [_error_document(error) for error in reading.also],
        "consequences": [_error_document(consequence) for consequence in reading.consequences],
        "hints": [_error_document(hint) for hint in reading.hints],
        "notes": list(answer.notes),
        "timeline": _timeline(answer.timeline),
        "seconds": round(answer.seconds, 3),
    }


def _result(error: LoggedError, answer: Answer) -> ResultDocument:
    code, title = name_of(error)
    fix = answer.fixes.get(code)
    return {
        "code": code,
        "title": title,
        "fault": fault_of(error),
        "status": "fail",
        "reason": "; ".join(
            each.message if each.code == code else f"{each.code}: {each.message}"
            for each in (answer.confirmed or {}).get(code, ())
        )
        or confirmation(answer, error),
        "seconds": 0.0,
        "findings": [
            {
                "message": f"{title}: {shown(error.words)}",
                "severity": "error",
                "phase": error.phase,
                "evidence": {
                    "found": shown(error.words),
                    "wanted": "",
                    "read_from": f"{error.source}:{error.number}",
                    "lines": shown_together(error.lines),
                    "process": shown(error.process),
                },
                "location": {"path": error.source, "line": error.number},
                "subject": _subject(error),
                "remedy": remedy_of(error),
                "confirm": confirming(error.signature) if error.blame is None and error.signature else "",
                "node": None,
                "fix": None if fix is None else {"id": fix[0], "safety": fix[1]},
            }
        ],
    }


def _subject(error: LoggedError) -> SubjectDocument | None:
    """Return the setting or the file that an exception names, or the place in the job's code."""
    blame = error.blame
    if blame is None and error.settings:
        return {"kind": "setting", "name": shown(", ".join(error.settings)), "place": ""}
    if blame is None or not (blame.settings or blame.file):
        return None
    return {
        "kind": "setting" if blame.settings else "file",
        "name": shown(", ".join(blame.settings) if blame.settings else blame.file),
        "place": shown(blame.place),
    }


def _error_document(error: LoggedError) -> ErrorDocument:
    signature = error.signature
    return {
        "words": shown(error.words),
        "code": signature.code if signature is not None and signature.code else None,
        "title": signature.title if signature is not None else "",
        "kind": signature.kind if signature is not None else "unknown",
        "path": error.source,
        "line": error.number,
        "process": shown(error.process),
        "lines": shown_together(error.lines),
        "times": error.times,
        "place": place_in_job(error),
        "then": shown(error.then),
    }


def _timeline(timeline: Timeline) -> TimelineDocument:
    return {
        "seconds": _rounded(timeline.seconds),
        "has_step": timeline.has_step,
        "workers": [
            {
                "name": shown(worker.name),
                "node": shown(worker.node),
                "spans": [_span(span) for span in worker.spans],
            }
            for worker in timeline.workers
        ],
        "moments": [
            {
                "what": moment.what,
                "at": _rounded(moment.at),
                "path": moment.proof.source,
                "line": moment.proof.number,
            }
            for moment in timeline.moments
        ],
        "notes": list(timeline.notes),
    }


def _span(span: Span) -> SpanDocument:
    return {
        "phase": span.phase,
        "seconds": _rounded(span.seconds),
        "start": _rounded(span.start),
        "how": span.how,
        "is_open": span.is_open,
        "parts": {shown(name): _rounded(length) for name, length in span.parts},
        "proof": [
            {"path": proof.source, "line": proof.number, "words": shown(proof.words)} for proof in span.proof
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
