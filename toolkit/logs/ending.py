"""What ended a run, and what it survived."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from verl_doctor.toolkit.logs.finish import Life
from verl_doctor.toolkit.logs.first_cause import (
    death_in,
    first_error,
    follows,
    is_loud,
    is_server_failure,
    last_word,
)
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.logged_error import NEAR, LoggedError
from verl_doctor.toolkit.logs.python_errors import Raised, bare_errors
from verl_doctor.toolkit.logs.reported import error_of, is_general, last_known, with_signature
from verl_doctor.toolkit.logs.signature import Signature, which
from verl_doctor.toolkit.logs.survived import SURE, Steps

_ABORTED = re.compile(r"exit ?code *[:=]? *(?:-6|134)\b|return code = -6|SIGABRT|: Aborted")
FOLLOWS = Signature("", "consequence", "Another process ended, and this one noticed it", ())


def fatal_exceptions(
    every: Sequence[Raised], in_lines: Sequence[LoggedError], steps: Steps, life: Life
) -> tuple[list[Raised], list[Raised]]:
    """Return the exceptions that may have ended the run, and those that it survived.

    The program's last output counts unless training continued after it. An exception raised once counts
    unless the run was ended from outside.
    """
    if not every:
        return [], []
    end = last_word(every)
    was_ended = _is_end(end) or any(error.kind == "ended" for error in in_lines)
    known = [f"{raised.type}: {raised.message}" for raised in every]
    over = steps.survived(
        zip((raised.line.number for raised in every), known, strict=True), 1 if was_ended else SURE
    )
    often = Counter(known)
    rest: list[Raised] = []
    survived_reports: list[Raised] = []
    for raised, words, is_over in zip(every, known, over, strict=True):
        is_last_word = raised is end and not raised.line.process and not steps.count_after(raised.line.number)
        counts = is_over and not is_last_word and (was_ended or often[words] > 1)
        (survived_reports if counts or life.has(raised.line.number) else rest).append(raised)
    return rest, survived_reports


def _is_end(raised: Raised) -> bool:
    """Return whether an exception reports that the program was ended from outside."""
    signature = which(f"{raised.type}: {raised.message}")
    return signature is not None and signature.kind == "ended"


def ending_of(fatal: LoggedError | None, in_lines: Sequence[LoggedError], steps: Steps) -> LoggedError | None:
    """Return the error that ended the run, or the line that reports that it was ended from outside.

    The latter applies if the run was ended before anything failed.
    """
    first = next(
        (error for error in in_lines if error.kind == "ended" and steps.count_after(error.number) < SURE),
        None,
    )
    if fatal is not None and fatal.kind == "ended" and steps.count_after(fatal.number) >= SURE:
        fatal = None
    if first is None:
        return fatal
    if fatal is not None:
        is_near = 0 < fatal.number - first.number <= NEAR
        follows_it = fatal.kind in {"consequence", "weak", "ended"} and is_near and not first.process
        return first if follows_it else fatal
    failed_before = any(
        error.kind == "consequence" and error.number < first.number and not steps.count_after(error.number)
        for error in in_lines
    )
    return None if failed_before else first


def fatal_error(
    loud: Sequence[Raised],
    errors: Sequence[LoggedError],
    fatal_lines: Sequence[Line],
    lines: Sequence[Line],
    source: str,
) -> LoggedError | None:
    """Return the original error, or the death of a process.

    `fatal_lines` are the lines that the run did not survive.
    """
    first = first_error(loud)
    if first is None:
        death = death_in(fatal_lines)
        if death is not None:
            return with_signature(LoggedError(source, death.number, death.process, death.words, death.lines))
        bare = [raised for raised in bare_errors(fatal_lines) if is_loud(raised.line)]
        return last_known(bare, lines, source)
    if not follows(first):
        # The whole chain of the program's last exception: intermediate exceptions may reveal more.
        last = last_word(loud)
        end = next(error for error, raised in zip(errors, loud, strict=True) if raised is last)
        own = error_of(first, lines, source)
        explains_more = own.signature is None or (is_general(own) and not is_general(end))
        explains_more = explains_more and (first is last.first or not is_server_failure(last.first))
        if explains_more and end.signature is not None and not follows(last.first):
            return end
        return own
    death = death_in(fatal_lines)
    if death is not None:
        return with_signature(LoggedError(source, death.number, death.process, death.words, death.lines))
    own_error = error_of(first, lines, source)
    return own_error if own_error.signature is not None else replace(own_error, signature=FOLLOWS)


def survived_reports(in_lines: Sequence[LoggedError], steps: Steps, enough: int) -> list[LoggedError]:
    """Return the reports outside tracebacks that the run survived.

    An early hint may still turn out to be the cause.
    """
    over = steps.survived(((error.number, error.words) for error in in_lines), enough)
    return [
        error
        for error, is_over in zip(in_lines, over, strict=True)
        if (is_over and (error.kind in {"cause", "weak"} or steps.count_after(error.number) >= enough))
        or steps.was_scheduled_later(error.words)
    ]


def without_aborts(errors: Sequence[LoggedError]) -> list[LoggedError]:
    """Return the errors without the deaths of processes that aborted because of an earlier error."""
    first = next((error.number for error in errors if error.kind == "consequence"), math.inf)
    return [
        error
        for error in errors
        if not (error.kind == "weak" and error.number > first and _ABORTED.search(error.words))
    ]
