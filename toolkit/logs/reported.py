"""The reports of a log: its exceptions, and lines outside tracebacks that known texts match."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.logs.blame import (
    blamed_complaint,
    is_of_the_job,
    own_frames,
)
from verl_doctor.toolkit.logs.excerpt import GOES_ON, has_word
from verl_doctor.toolkit.logs.failed import failure_in
from verl_doctor.toolkit.logs.first_cause import (
    cause_of,
    complaint_in,
    follows,
    is_loud,
    refused_argument,
)
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.logged_error import LONGEST, LoggedError
from verl_doctor.toolkit.logs.phase import phase_of_process
from verl_doctor.toolkit.logs.python_errors import LOOKUPS, OVERRIDES, Raised, variable_read_at
from verl_doctor.toolkit.logs.signature import Signature, which
from verl_doctor.toolkit.logs.survived import Steps
from verl_doctor.toolkit.text import without_middle

_FRAME = '  File "'
_THROWN = "terminate called after throwing an instance of "
_WHAT = "  what(): "
_END = 100  # lines at the end of a log, which always count
_WRAPPED = re.compile(r"failed with (?:error|exception)[: ]+['\"](.+)")
# Phrases with which programs report a loss that they can bear.
_TOLERATED = re.compile(
    r"silence this warning|[Ff]alling back|[Ff]all back to|[Ff]allback to|[Ss]kipping|will be "
    r"(?:disabled|ignored)|is ignored|[Ii]gnoring|^Ignore \w+ error"
)


def reports_in_lines(lines: Sequence[Line], loud: Sequence[Raised], source: str) -> Iterator[LoggedError]:
    """Yield the reports outside tracebacks."""
    raised = {each.line for raised in loud for each in raised.chain}
    frames = {
        text.strip(): each.frame.text
        for raised_last in loud
        for each in raised_last.chain
        if each.frame is not None
        for text in each.message.split("\n")[1:]
    }
    framed: dict[str, bool] = {}  # by process: whether its last line named a place in a file
    warned: dict[str, bool] = {}  # whether a warning of it continues
    thrown: dict[str, str] = {}  # by process: the C++ exception whose message the next line has
    complained = -GOES_ON  # the last line with one of the words
    for at, line in enumerate(lines):
        complained = line.number if has_word(line.text) else complained
        is_frame = line.text.startswith(_FRAME)
        is_code = framed.get(line.process, False) and line.text.startswith("    ")
        framed[line.process] = is_frame or is_code
        is_warning = warned.get(line.process, False)
        warned[line.process] = line.level == "WARNING" and line.text.endswith(":")
        if (
            is_frame
            or is_code
            or is_warning
            or line in raised
            or not (at >= len(lines) - _END or line.number - complained <= GOES_ON)
            or line.text.startswith(OVERRIDES)
        ):
            continue
        before = thrown.pop(line.process, "")
        if line.text.startswith(_THROWN):
            thrown[line.process] = line.text
        text = f"{before} {line.text}" if before and line.text.startswith(_WHAT) else line.text
        signature = which(text, frames.get(line.text.strip(), ""))
        if signature is None or not (is_loud(line) or _counts(signature, line)):
            continue
        if signature.of_worker and not line.process:
            continue
        if (_TOLERATED.search(line.text) and not signature.warning) or (
            signature.raised and "Error: " not in line.text
        ):
            continue
        words = line.text.strip()
        yield LoggedError(
            source,
            line.number,
            line.process,
            without_middle(words, LONGEST),
            tuple(other.written[:LONGEST] for other in lines[at : at + 1 + signature.quotes]),
            signature,
        )


def _counts(signature: Signature, line: Line) -> bool:
    """Return whether a line that no logger marks as an error counts for this signature."""
    return signature.kind in {"hint", "note"} or (signature.warning and line.level == "WARNING")


def error_of_chain(raised: Raised, lines: Sequence[Line], source: str) -> LoggedError:
    """Return one error for a chain of exceptions: the original if it has more than a general remedy.

    It must be known by more than a general remedy.

    Otherwise return the first of the others, from the innermost, that is known and more than a consequence;
    failing that, the original one, unknown.
    """
    first = raised.first
    began = error_of(first, lines, source)
    if began.signature is not None and not is_general(began):
        return began
    others = (
        error_of(each, lines, source)
        for each in reversed(list(raised.chain))
        if each is not first and each.name not in LOOKUPS
    )
    known = (
        each
        for each in others
        if each.signature is not None
        and each.kind != "consequence"
        and (began.signature is None or (each.signature.remedy and not each.signature.named))
    )
    return next(known, began)


def is_general(error: LoggedError) -> bool:
    """Return whether only the kind of an error is known: a fault of the job, with no remedy of its own."""
    signature = error.signature
    return error.kind == "job" and signature is not None and (signature.named or not signature.remedy)


def error_of(raised: Raised, lines: Sequence[Line], source: str) -> LoggedError:
    """Return the report of an exception, with the signature that its message matches."""
    cause = cause_of(raised, lines)
    signature = which(f"{raised.type}: {raised.message}", cause.frame)
    if wrapped := _WRAPPED.search(
        raised.message
    ):  # a worker's error in the words of the process that waited for it
        signature = which(wrapped[1]) or (None if wrapped[1].strip(" '\"") else signature)
    elif signature is not None and signature.kind == "consequence" and not follows(raised):
        # What follows an exception may belong to another process.
        signature = which(f"{raised.type}: {raised.message.partition(chr(10))[0]}", cause.frame)
    if signature is not None and signature.of_worker and not (cause.process or cause.frame):
        signature = None
    if (
        signature is not None
        and signature.of_package
        and any(map(is_of_the_job, own_frames(raised.frames)[-1:]))
    ):
        signature = None
    if signature is not None and signature.of_variable and not _reads_variable(raised):
        signature = None
    return LoggedError(source, cause.number, cause.process, cause.words, cause.lines, signature)


def _reads_variable(raised: Raised) -> bool:
    """Return whether the source line that raised an exception reads an environment variable."""
    return any(variable_read_at(frame.code) for frame in own_frames(raised.frames)[-1:])


def with_signature(error: LoggedError) -> LoggedError:
    """Return an error with the signature that its words match."""
    return replace(error, signature=which(error.words))


def last_known(errors: Sequence[Raised], lines: Sequence[Line], source: str) -> LoggedError | None:
    """Return the last known exception, otherwise the last of all; None if there is none."""
    last: LoggedError | None = None
    for error in reversed(errors):
        last_error = error_of(error, lines, source)
        if last_error.signature is not None:
            return last_error
        last = last or last_error
    return last


def complaint_of(lines: Sequence[Line], source: str, ended: LoggedError | None) -> LoggedError | None:
    """Return the last output of a program that raised nothing.

    If another process noticed its end, return the argument that it refused.
    """
    cause, phase = complaint_in(lines) or (None, None) if ended is None else (refused_argument(lines), None)
    # Ray may print a worker's last line after the driver's exception.
    if cause is None or (ended is not None and not cause.process and cause.number > ended.number):
        return None
    if cause.process:
        phase = phase_of_process(cause.process)
    blame = blamed_complaint(cause.words, phase)
    return LoggedError(
        source, cause.number, cause.process, cause.words, cause.lines, phase=phase, blame=blame
    )


def shows_failure(
    lines: Sequence[Line], source: str, steps: Steps, known: Sequence[LoggedError], *, finished: bool
) -> LoggedError | None:
    """Return what shows that the run failed if nothing in the log is a cause or a consequence."""
    numbers = {error.number for error in known}
    rest = [line for line in lines if line.number not in numbers]
    cause = failure_in(rest, steps.last, finished=finished)
    return (
        None if cause is None else LoggedError(source, cause.number, cause.process, cause.words, cause.lines)
    )
