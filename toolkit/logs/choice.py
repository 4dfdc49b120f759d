"""Chooses the first cause among the reports of a log, and what else explains it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from verl_doctor.toolkit.logs.logged_error import NEAR, LoggedError, code_of, distinct, only_follows
from verl_doctor.toolkit.logs.survived import Steps

LATE = 10  # lines by which a child process's output may trail its parent's exception
_OUTPUT = 60  # lines of a compiler's output below the exception that reports its failure
_COMPILED = re.compile(
    r"CppCompileError|C\+\+ compile error|Error building extension|Failed to compile|codegen error"
)
_OF_NCCL = "NET130"  # the code of faults that only NCCL's last warning shows
_OF_REWARD = "LOG272"  # the code of rewards that fail, which verl then counts as 0
_REASONLESS = re.compile(
    r"unhandled (?:system|cuda) error|nccl\w*(?:System|Internal|Unhandled)\w*Error|NCCL [Ee]rror \d"
    r"|NCCL error: (?:invalid|internal)"
)
# By code: the failures that a note explains. A note with another code explains every failure.
_EXPLAINED = {_OF_NCCL: _REASONLESS, "LOG271": re.compile(r"device-side assert|\b[Nn]a[Nn]\b")}
_INNER = "See inner exception"


def choose(
    fatal: LoggedError | None, began: LoggedError | None, errors: Sequence[LoggedError], *, late: int
) -> tuple[LoggedError | None, LoggedError | None]:
    """Return the named first cause, or the error that has none.

    `fatal` is the error that ended the run; `began` is the first of the exceptions with which processes
    ended, except for those that only follow. Up to `late` lines after an unknown error may still explain it.
    """
    strong = [error for error in errors if error.is_strong]
    weak = [error for error in errors if error.kind == "weak"]
    if fatal is None or only_follows(fatal):
        if began is not None and began.kind == "job":
            return None, began
        hints = [
            error for error in errors if error.kind == "hint" and (fatal is None or _leads_to(error, fatal))
        ]
        if began is not None and began.signature is None:
            weak, hints = [error for error in weak if error.number < began.number], []
        causes = [*strong[:1], *weak[:1], *hints[:1]]
        return (causes[0], None) if causes else (None, began or fatal)
    if fatal.is_strong:
        return next((error for error in strong if _is_behind(error, fatal)), fatal), None
    if fatal.kind == "weak":
        before = [error for error in strong if error.number <= fatal.number + LATE]
        if _INNER in fatal.words:  # it refers to another exception for the details
            before += [error for error in weak if error.number < fatal.number]
        return (before[0] if before else fatal), None
    if fatal.signature is not None:  # a fault of the job itself
        return None, fatal
    near = [error for error in strong if _explains(error, fatal)]
    late = max(late, _OUTPUT if _COMPILED.search(fatal.words) else 0)
    near += [
        error
        for error in strong
        if 0 < error.number - fatal.number <= late and error.process == fatal.process
    ]
    return (near[0], None) if near else (None, fatal)


def beginning_of(errors: Sequence[LoggedError]) -> LoggedError | None:
    """Return the first of the processes' last exceptions, except for those that only follow."""
    last = {error.process: error for error in errors if not only_follows(error)}
    return min(last.values(), key=lambda error: error.number, default=None)


def _explains(error: LoggedError, fatal: LoggedError) -> bool:
    """Return whether a known fault was logged before an unknown error.

    Either shortly before by the same process, or as an error of another process.
    """
    if error.number > fatal.number:
        return False
    return error.process != fatal.process or fatal.number - error.number <= NEAR


def _leads_to(hint: LoggedError, fault: LoggedError) -> bool:
    """Return whether a hint was logged before a fault that may result from it."""
    if hint.signature is None or fault.signature is None or hint.number > fault.number:
        return False
    return not {fault.signature.code, fault.kind}.isdisjoint(hint.signature.leads_to)


def _is_behind(cause: LoggedError, fault: LoggedError) -> bool:
    """Return whether a cause results in a fault wherever it is reported.

    What is in a script was there before.
    """
    return (
        cause.signature is not None
        and fault.signature is not None
        and fault.signature.code in cause.signature.leads_to
    )


def _leads_to_failure(note: LoggedError, failure: LoggedError) -> bool:
    """Return whether a note explains an unexplained failure of another process or NCCL.

    Most NCCL warnings are harmless.
    """
    if note.signature is None or "consequence" not in note.signature.leads_to or note.number > failure.number:
        return False
    explained = _EXPLAINED.get(note.signature.code)
    return explained is None or explained.search(failure.words) is not None


def after_hint(fault: LoggedError, hints: Sequence[LoggedError]) -> tuple[LoggedError, ...]:
    """Return a fault, after the first hint that leads to it."""
    before = [hint for hint in hints if _leads_to(hint, fault)]
    return distinct((*before[:1], fault))


def other_faults(candidates: Sequence[LoggedError], named: Sequence[LoggedError]) -> tuple[LoggedError, ...]:
    """Return the other faults that were logged, those that are causes by themselves first."""
    faults = [error for error in candidates if error.kind in {"cause", "weak"}]
    return tuple(
        error
        for error in distinct(sorted(faults, key=lambda error: not error.is_strong))
        if not any(code_of(error) == code_of(other) for other in named)
    )


def explaining(
    notes: Sequence[LoggedError], hints: Sequence[LoggedError], failure: LoggedError
) -> tuple[LoggedError, ...]:
    """Return the last note that explains a failure, after the first hint that leads to it, or nothing."""
    explaining = [note for note in notes if _leads_to_failure(note, failure)]
    if not explaining:
        return ()
    *before, last = after_hint(explaining[-1], hints)
    if last.kind == "hint":  # it reports a state, which begins with its first occurrence
        last = next(note for note in explaining if code_of(note) == code_of(last))
    return (*before, last)


def awaited(notes: Sequence[LoggedError], steps: Steps, ended: LoggedError) -> tuple[LoggedError, ...]:
    """Return the first note that explains why a run made no step until it was ended from outside.

    Return nothing if there is none.
    """
    waited = (
        note
        for note in notes
        if note.kind == "note" and _leads_to(note, ended) and not steps.count_after(note.number)
    )
    return tuple(islice(waited, 1))


def is_of_reward(error: LoggedError) -> bool:
    """Return whether an error reports that rewards failed, which verl then counts as 0."""
    return error.signature is not None and error.signature.code == _OF_REWARD
