"""The findings of `verl-doctor logs` as a JSON document, and the phrases that its views share."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.json_document import Code, Count, Keyword, Line
from verl_doctor.toolkit.logs.blame import Blame, Fault
from verl_doctor.toolkit.logs.conditions import fitting
from verl_doctor.toolkit.logs.diagnosis import Reading
from verl_doctor.toolkit.logs.lines import shown, shown_together
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.recognised import Kind as FileKind
from verl_doctor.toolkit.logs.signature import Kind, Signature
from verl_doctor.toolkit.logs.stage import STAGES
from verl_doctor.toolkit.logs.timeline.timeline import How, Span, Timeline
from verl_doctor.toolkit.result import STATUSES
from verl_doctor.toolkit.rule import WHEN, Finding, Phase, family_of

OK, FIRST_CAUSE, NOT_DETERMINED = "OK", "FIRST CAUSE", "NOT DETERMINED"
YOUR_CODE, YOUR_CONFIGURATION = "YOUR CODE", "YOUR CONFIGURATION"
_WORDS: dict[Fault | Literal["environment"], str] = {
    "environment": FIRST_CAUSE,
    "configuration": YOUR_CONFIGURATION,
    "code": YOUR_CODE,
    "launch": YOUR_CONFIGURATION,
    "program": FIRST_CAUSE,
}
_JUDGED_BEFORE: tuple[Fault | Literal["environment"], ...] = ("configuration", "launch")
"""What `check` also judges. The pages of codes that state only who is at fault add nothing to the answer."""
_SUBJECTS = {"CFG": "LAUNCH_SCRIPT ", "DATA": "LAUNCH_SCRIPT ", "LOAD": "--model DIR "}
"""The input that a rule of this family requires."""
_NAMED = 3  # logs named in one sentence


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


@dataclass(frozen=True)
class Confirmation:
    """What a rule reports on this machine about a cause: one of its findings, or why it has none.

    `place` and `remedy` are the finding's, "" if the rule has none. `is_finding`: the rule has found it.
    """

    code: str
    message: str
    place: str = ""
    remedy: str = ""
    is_finding: bool = True

    @property
    def line(self) -> str:
        """The rule, the place, and the first step of the remedy, or the message where there is no remedy."""
        at = f" {self.place}" if self.place else ""
        return f"{self.code}{at}: {self.remedy.partition('; ')[0] or self.message}"

    @property
    def words(self) -> str:
        """The rule, its message and the place."""
        return f"{self.code}: {self.message}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True)
class Answer:
    """What was read and found, and how the start-up time was spent.

    `notes` list what was skipped; `unread` names logs that may not have been read completely. `confirmed`
    holds what the rules report here, by the cause's code, if they were run; without an entry there, no rule
    looks for the cause. `fixes` holds the fix for a fault
    and its safety, by the fault's code. `arguments` are the options that name the target.
    """

    reading: Reading
    files: tuple[str, ...]
    size: int
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    confirmed: Mapping[str, tuple[Confirmation, ...]] | None = None
    seconds: float = 0.0
    timeline: Timeline = field(default_factory=Timeline)
    fixes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    other_files: Mapping[str, FileKind] = field(default_factory=dict)
    """What the files are if none of them is a log."""

    @property
    def verdict(self) -> Literal["ok", "failures", "not_determined"]:
        """The verdict in one word: nothing failed, a cause was named, or no cause could be named."""
        if self.reading.first is not None:
            return "failures"
        return "ok" if self.exit_code is ExitCode.OK else "not_determined"

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to read."""
        return not self.reading.total

    @property
    def exit_code(self) -> ExitCode:
        """1 if a cause was named, 0 if nothing failed, 3 otherwise.

        3 means that something failed for an undetermined reason, or that the logs were unreadable, empty, or
        no logs.
        """
        if self.reading.first is not None:
            return ExitCode.FAILED
        found = self.reading.error is not None or self.reading.consequences
        unjudged = found or self.unread or self.is_empty or self.other_files
        return ExitCode.COULD_NOT_CHECK if unjudged else ExitCode.OK


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


def confirming(signature: Signature, arguments: Sequence[str] = ()) -> str:
    """Return the command that confirms the fault on this machine, "" if there is none.

    `arguments` name the target.
    """
    if not signature.rules:
        return ""
    subject = _not_named(signature.rules[0], arguments)
    deep = " --deep" if signature.deep else ""
    named = "".join(f" {shlex.quote(word)}" for word in arguments)
    return f"verl-doctor check {subject}--select {','.join(signature.rules)}{deep}{named}"


def _not_named(code: str, arguments: Sequence[str]) -> str:
    """Return the placeholder of the input that a rule requires and the arguments do not name, or ""."""
    subject = _SUBJECTS.get(family_of(code), "")
    launch = list(arguments)
    while launch and launch[0].startswith("--") and launch[0] != "--":
        del launch[:2]
    return "" if (launch if subject.startswith("LAUNCH") else "--model" in arguments) else subject


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
                "subject": subject_of(error),
                "remedy": remedy_of(error),
                "confirm": confirming(error.signature) if error.blame is None and error.signature else "",
                "node": None,
                "fix": None if fix is None else {"id": fix[0], "safety": fix[1]},
            }
        ],
    }


def fault_of(error: LoggedError) -> Fault | Literal["environment"]:
    """Return where the fault of a first cause lies."""
    if error.blame is not None:
        return error.blame.fault
    return (
        "configuration" if error.signature is not None and error.signature.is_of_settings else "environment"
    )


def name_of(error: LoggedError) -> tuple[str, str]:
    """Return the code and the title of a first cause. Raises ValueError for anything else."""
    if error.blame is not None:
        return error.blame.code, shown(_title_of(error, error.blame))
    if error.signature is None:
        raise ValueError(error.words)
    return error.signature.code, error.signature.title


def _title_of(error: LoggedError, blame: Blame) -> str:
    """Return the title of a known exception, with its place; otherwise where the fault lies."""
    if error.signature is None or not error.signature.remedy or blame.fault != "program":
        return blame.title
    return f"{error.signature.title}, raised at {blame.place}" if blame.place else error.signature.title


def remedy_of(error: LoggedError) -> str:
    """Return what helps."""
    known = (
        error.signature.at.get(error.stage) or error.signature.remedy if error.signature is not None else ""
    )
    own = shown(error.blame.remedy) if error.blame is not None and (error.blame.settings or not known) else ""
    advice = shown(error.advice)
    if error.signature is not None and error.signature.otherwise and not advice:
        known = f"{error.signature.otherwise}; {known}"
    if advice and error.blame is not None and error.blame.fault != "code" and not error.blame.settings:
        own = ""
    if error.blame is not None and error.blame.settings and error.blame.settings[0] in advice:
        own = ""
    if error.specific and error.blame is not None and error.blame.fault == "program":
        own = ""
    if known and error.signature is not None and error.signature.kind == "job" and not error.signature.named:
        advice = ""  # the signature has what resolved this very complaint
    if advice and error.settings and error.signature is not None and not error.signature.named:
        known = ""  # the advice is on the very setting
    return "; ".join(
        filter(
            None,
            (
                shown(error.specific),
                own,
                advice,
                fitting(known, error.traits, f"{error.specific}; {own}; {advice}"),
            ),
        )
    )


def subject_of(error: LoggedError) -> SubjectDocument | None:
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


def place_in_job(error: LoggedError) -> str:
    """Return the place in the job's own code that raised an error, "" if it was raised elsewhere."""
    return shown(error.blame.place) if error.blame is not None and error.blame.fault == "code" else ""


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


def confirmation(answer: Answer, cause: LoggedError) -> str:
    """Return whether a rule confirms a cause here; "" if no rules were to be run."""
    if answer.confirmed is None:
        return ""
    code, _ = name_of(cause)
    if code not in answer.confirmed:
        needs_script = cause.blame is not None and cause.blame.fault in _JUDGED_BEFORE
        return "no rule can confirm this" + (" without the launch script (--script)" if needs_script else "")
    each = answer.confirmed[code]
    found = next((rule for rule in each if rule.is_finding), None)
    if found is not None:
        return f"confirmed here by {found.code}" + (f" at {found.place}" if found.place else "")
    return "not confirmed here" + (f" by {', '.join(rule.code for rule in each)}" if each else "")


def _is_refuted(answer: Answer, cause: LoggedError) -> bool:
    """Return whether rules that could confirm a cause here found nothing."""
    each = (answer.confirmed or {}).get(name_of(cause)[0], ())
    return bool(each) and not any(rule.is_finding for rule in each)


def is_about(finding: Finding, cause: LoggedError) -> bool:
    """Return whether a rule's error is about the setting that an exception names, or about its place.

    Of settings that belong together, such as the path and the name of a class, a rule may name another one:
    it counts if both strike in the same phase.
    """
    blame, subject, place = cause.blame, finding.subject, finding.location
    if blame is None or finding.severity != "error":
        return False
    if subject is not None and subject.kind == "setting":
        named = f".{subject.name}"
        group = subject.name.rpartition(".")[0] if finding.phase == cause.phase else ""
        for key in blame.settings:
            if named.endswith(f".{key}") or f".{key}".endswith(named):
                return True
            if "." in group and key.rpartition(".")[0] == group:
                return True
    if blame.fault == "launch":
        return finding.phase == "shell"
    return place is not None and bool(blame.place) and blame.place.partition(", in ")[0] == str(place)


def headline(answer: Answer) -> tuple[str, str]:
    """Return a status of one or two words, and the sentence that follows it."""
    reading = answer.reading
    if reading.first is not None:
        code, title = name_of(reading.first)
        when = WHEN[reading.first.phase][0] if reading.first.phase else ""
        when = STAGES.get(reading.first.stage, when)
        when = f" ({when})" if when else ""
        named = f": {', '.join(reading.first.settings)}" if reading.first.settings else ""
        return _WORDS[fault_of(reading.first)], f"{code}: {title}{shown(named)}{when}"
    error = reading.error
    if error is None:
        if reading.consequences:
            sentence = "a process ended, and these logs do not show why"
        elif answer.is_empty:
            named = ", ".join(answer.files[:_NAMED])
            sentence = f"nothing was read: {named} {'is' if len(answer.files) == 1 else 'are'} empty"
        elif answer.unread:
            sentence = (
                f"no sign of a failure, but not all of {', '.join(answer.unread[:_NAMED])} could be read"
            )
        elif answer.other_files:
            sentence = _no_log(answer.other_files)
        elif any(beside.kind not in {"hint", "note"} for beside in reading.hints):
            how = "finished" if reading.finished else "went on"
            return OK, f"the training {how}, and no complaint in the logs stopped it"
        else:
            silent = "" if reading.has_step or reading.finished else "; they show no training step and no end"
            return OK, f"these logs show no failure{silent}"
    elif error.signature is not None and error.signature.kind == "ended":
        sentence = f"{_lower(error.signature.title)}; nothing before it failed"
    elif error.signature is not None and error.signature.kind == "job":
        sentence = f"no fault of the environment: {_lower(error.signature.title)}"
    elif error.signature is not None:
        sentence = f"the logs show only a consequence: {_lower(error.signature.title)}"
    else:
        sentence = (
            f"something failed, and {'this log does' if len(answer.files) == 1 else 'these logs do'} not "
            "show why"
        )
    return NOT_DETERMINED, sentence


def _no_log(files: Mapping[str, FileKind]) -> str:
    """Return what the files are instead of logs."""
    for name, kind in files.items():
        if kind != "unknown":
            judged = f": verl-doctor check {shlex.quote(name)} judges it" if kind == "shell script" else ""
            return f"{name} is a {kind}, not a log{judged}"
    named = ", ".join(list(files)[:_NAMED])
    return f"nothing in {named} is output of verl, Ray, vLLM, torch, Python, a launcher or a scheduler"


def _lower(title: str) -> str:
    """Return a title as it reads inside a sentence: lowercase its article, but not a name such as Slurm."""
    first = title.partition(" ")[0]
    return title[:1].lower() + title[1:] if first in {"A", "An", "The"} else title


def only_consequences(answer: Answer) -> bool:
    """Return whether the logs show that something died but not why, which other processes' logs may show."""
    error = answer.reading.error
    known = error.signature if error is not None else None
    if answer.reading.first is not None or (error is not None and known is None):
        return False
    return bool(answer.reading.consequences) and (known is None or known.kind == "consequence")


def next_steps(answer: Answer) -> Sequence[str]:
    """Return commands, the most useful first."""
    steps = []
    for cause in answer.reading.causes[:2]:
        signature = cause.signature
        if signature is None:
            continue
        named = "".join(f" {shlex.quote(word)}" for word in answer.arguments)
        if confirm := confirming(signature, answer.arguments):
            steps.append(f"{confirm}  # check whether this machine has the fault")
        if signature.code in answer.fixes and not _is_refuted(answer, cause):
            subject = _not_named(signature.code, answer.arguments)
            steps.append(
                f"verl-doctor fix {subject}--select {signature.code}{named}  # the repair, as a diff"
            )
        steps.append(f"verl-doctor explain {signature.code}")
    first = answer.reading.first
    if not steps and first is not None and fault_of(first) in _JUDGED_BEFORE:
        script = _not_named("CFG", answer.arguments) or "".join(
            f"{shlex.quote(word)} " for word in answer.arguments
        )
        steps.append(f"verl-doctor check {script} # judge the script and the configuration before a run")
    if only_consequences(answer):
        steps.append(
            "verl-doctor logs /tmp/ray/session_latest/logs  # the logs of Ray's processes, on the node "
            "that died"
        )
    return steps
