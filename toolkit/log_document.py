"""What `verl-doctor logs` found as a JSON document. `data/logs.schema.json` describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.log_diagnosis import Reading, Told
from verl_doctor.toolkit.log_timeline import Span, Timeline
from verl_doctor.toolkit.result import STATUSES
from verl_doctor.toolkit.secret import without_secrets
from verl_doctor.toolkit.signature import Signature
from verl_doctor.toolkit.text import harmless

SCHEMA_VERSION = 1
_SUBJECTS = {"CFG": "LAUNCH_SCRIPT ", "DATA": "LAUNCH_SCRIPT ", "LOAD": "--model DIR "}
"""What a rule of this family must be shown."""
_NAMED = 3  # logs in one sentence


@dataclass(frozen=True)
class Answer:
    """What was read and found, and where the time of the start went.

    `notes` say what was passed over, `unread` names the logs of which something may not have been read; `confirmed` what the rules say
    here, by code, when they were asked; `fixes` which fix of ours repairs a fault, and how safe it is, by the fault's code.
    """

    reading: Reading
    files: tuple[str, ...]
    size: int
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    confirmed: Mapping[str, str] | None = None
    seconds: float = 0.0
    timeline: Timeline = field(default_factory=Timeline)
    fixes: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """One word: a cause was named or not."""
        return "failures" if self.reading.causes else "not_determined"

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to read."""
        return not self.reading.total

    @property
    def exit_code(self) -> int:
        """1 a cause was named, 3 something went wrong and it was not determined why, or may have where nobody could read or nothing was written, 0 nothing."""
        if self.reading.causes:
            return 1
        told = self.reading.error is not None or self.reading.consequences
        return 3 if told or self.unread or self.is_empty else 0


def shown(text: str) -> str:
    """A line of a log for others to see: nothing in it acts on a terminal, and no secret is in it."""
    return harmless(without_secrets(text), keep="\t")


def document(answer: Answer) -> dict[str, Any]:
    """Everything, in JSON types. The first cause stands first."""
    reading = answer.reading
    results = [_result(one, answer) for one in reading.causes]
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": answer.verdict,
        "target": {"files": list(answer.files), "bytes": answer.size, "lines": reading.total},
        "results": results,
        "summary": {status: len(results) if status == "fail" else 0 for status in STATUSES},
        "first_error": None if reading.error is None else _told(reading.error),
        "also": [_told(one) for one in reading.also],
        "consequences": [_told(one) for one in reading.consequences],
        "hints": [_told(one) for one in reading.hints],
        "notes": list(answer.notes),
        "timeline": _timeline(answer.timeline),
        "seconds": round(answer.seconds, 3),
    }


def confirming(signature: Signature) -> str:
    """The command that says whether it is so on this machine, "" when none does."""
    if not signature.rules:
        return ""
    family = signature.rules[0].rstrip("0123456789")
    deep = " --deep" if signature.deep else ""
    return f"verl-doctor check {_SUBJECTS.get(family, '')}--select {','.join(signature.rules)}{deep}"


def _result(one: Told, answer: Answer) -> dict[str, Any]:
    signature = one.signature
    if signature is None:  # a named cause has one
        raise ValueError(one.words)
    fix = answer.fixes.get(signature.code)
    return {
        "code": signature.code,
        "title": signature.title,
        "status": "fail",
        "reason": (answer.confirmed or {}).get(signature.code, ""),
        "seconds": 0.0,
        "findings": [
            {
                "message": f"{signature.title}: {shown(one.words)}",
                "severity": "error",
                "evidence": {
                    "found": shown(one.words),
                    "wanted": "",
                    "read_from": f"{one.source}:{one.number}",
                    "lines": [shown(line) for line in one.lines],
                    "process": shown(one.process),
                },
                "location": {"path": one.source, "line": one.number},
                "remedy": signature.remedy,
                "confirm": confirming(signature),
                "node": None,
                "fix": None if fix is None else {"id": fix[0], "safety": fix[1]},
            }
        ],
    }


def _told(one: Told) -> dict[str, Any]:
    signature = one.signature
    return {
        "words": shown(one.words),
        "code": signature.code if signature is not None and signature.code else None,
        "title": signature.title if signature is not None else "",
        "kind": signature.kind if signature is not None else "unknown",
        "path": one.source,
        "line": one.number,
        "process": shown(one.process),
        "lines": [shown(line) for line in one.lines],
        "times": one.times,
    }


def _timeline(timeline: Timeline) -> dict[str, Any]:
    return {
        "seconds": _rounded(timeline.seconds),
        "has_step": timeline.has_step,
        "workers": [
            {"name": shown(one.name), "node": shown(one.node), "spans": [_span(span) for span in one.spans]}
            for one in timeline.workers
        ],
        "moments": [
            {"what": one.what, "at": _rounded(one.at), "path": one.proof.source, "line": one.proof.number}
            for one in timeline.moments
        ],
        "notes": list(timeline.notes),
    }


def _span(span: Span) -> dict[str, Any]:
    return {
        "phase": span.phase,
        "seconds": _rounded(span.seconds),
        "start": _rounded(span.start),
        "how": span.how,
        "is_open": span.is_open,
        "parts": {shown(name): _rounded(length) for name, length in span.parts},
        "proof": [{"path": one.source, "line": one.number, "words": shown(one.words)} for one in span.proof],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def headline(answer: Answer) -> tuple[str, str]:
    """One or two words, and the sentence behind them."""
    reading = answer.reading
    if reading.causes:
        first = reading.causes[0]
        return "FIRST CAUSE", f"{first.signature.code}: {first.signature.title}" if first.signature else ""
    error = reading.error
    if error is None:
        if reading.consequences:
            said = "a process ended, and nothing says why"
        elif answer.is_empty:
            named = ", ".join(answer.files[:_NAMED])
            said = f"nothing was read: {named} {'is' if len(answer.files) == 1 else 'are'} empty"
        elif answer.unread:
            said = f"nothing says that something failed, but not all of {', '.join(answer.unread[:_NAMED])} could be read"
        else:
            said = "nothing in these logs says that something failed"
    elif error.signature is not None and error.signature.kind == "ended":
        said = f"{_lower(error.signature.title)}; nothing before says why"
    elif error.signature is not None and error.signature.kind == "job":
        said = f"no fault of the environment: {_lower(error.signature.title)}"
    elif error.signature is not None:
        said = f"only consequences are told: {_lower(error.signature.title)}"
    else:
        said = "the first error is none that is known as a fault of the environment"
    return "NOT DETERMINED", said


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def only_consequences(answer: Answer) -> bool:
    """Whether the logs tell that something died, and not why: those of another process may."""
    error = answer.reading.error
    known = error.signature if error is not None else None
    if answer.reading.causes or (error is not None and known is None):
        return False
    return bool(answer.reading.consequences) and (known is None or known.kind == "consequence")


def next_steps(answer: Answer) -> Sequence[str]:
    """Commands, the most useful first."""
    steps = []
    for one in answer.reading.causes[:2]:
        signature = one.signature
        if signature is None:
            continue
        if confirm := confirming(signature):
            steps.append(f"{confirm}  # is it so on this machine?")
        if signature.code in answer.fixes:
            steps.append(f"verl-doctor fix --select {signature.code}  # the repair, as a diff")
        steps.append(f"verl-doctor explain {signature.code}")
    if only_consequences(answer):
        steps.append(
            "verl-doctor logs /tmp/ray/session_latest/logs  # what Ray's processes said, on the node that died"
        )
    return steps
