"""Finds the first cause in logs.

Combines the first error (`first_cause`) with the faults that known texts prove (`signature`).

An error without a signature has no named cause. A fault of the environment is named if it is the error that
ended the run, or if the run's end shows only a consequence and the fault was logged earlier. Other findings
are reported separately. A complaint that the run survived is not a cause: training continued after it, or the
complaint itself states that it has no consequences. Neither is a repetition of the same complaint, except as
the program's last output.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.logs.choice import (
    LATE,
    after_hint,
    awaited,
    beginning_of,
    choose,
    explaining,
    is_of_reward,
    other_faults,
)
from verl_doctor.toolkit.logs.conditions import releases_in, traits_of
from verl_doctor.toolkit.logs.ending import (
    ending_of,
    fatal_error,
    fatal_exceptions,
    survived_reports,
    without_aborts,
)
from verl_doctor.toolkit.logs.finish import finished_at, life_of, parted
from verl_doctor.toolkit.logs.first_cause import (
    loud_errors,
)
from verl_doctor.toolkit.logs.lines import Line, unrelayed, without_collected_levels
from verl_doctor.toolkit.logs.located import Located
from verl_doctor.toolkit.logs.logged_error import (
    LoggedError,
    code_of,
    dated,
    distinct,
    is_unexplained,
    only_follows,
    with_address,
)
from verl_doctor.toolkit.logs.prefix import unprefixed
from verl_doctor.toolkit.logs.python_errors import bare_errors
from verl_doctor.toolkit.logs.quoted import without_quotations
from verl_doctor.toolkit.logs.reported import complaint_of, error_of_chain, reports_in_lines, shows_failure
from verl_doctor.toolkit.logs.survived import SURE, Steps

_AT_ONCE = 1.0  # second: clocks of nodes differ, and lines arrive late


@dataclass(frozen=True)
class Reading:
    """The diagnosis of one log.

    `causes` are named faults, the first cause first; `error` is the first error if it is none of them.
    """

    causes: tuple[LoggedError, ...] = ()
    error: LoggedError | None = None
    also: tuple[LoggedError, ...] = ()
    consequences: tuple[LoggedError, ...] = ()
    hints: tuple[LoggedError, ...] = ()
    total: int = 0
    finished: bool = False
    """Whether a training finished in it."""
    has_step: bool = False
    """Whether it shows a step of a training, or a server that is up."""

    @property
    def first(self) -> LoggedError | None:
        """The first cause: a named fault, or an exception that shows where the fault lies.

        None if the log has neither.
        """
        if self.causes:
            return self.causes[0]
        return self.error if self.error is not None and self.error.blame is not None else None

    @property
    def rank(self) -> int:
        """The rank of this log among several of a run: 0 for a cause by itself, 3 for a consequence.

        A cause by itself is a fault.
        """
        if self.causes:
            return 0 if any(cause.is_strong for cause in self.causes) else 2
        return 1 if self.error is not None and not only_follows(self.error) else 3

    @property
    def began(self) -> float:
        """When the first error was reported; infinite if unknown."""
        first = self.causes[0] if self.causes else self.error
        return math.inf if first is None else first.when


def read(lines: Sequence[Line], source: str, trains_from: float | None = None) -> Reading:
    """Judge one log. Output of the run's processes after its end is kept separately.

    `trains_from` is the line in which the first step begins, infinite for none; by default the lines are
    searched for it.
    """
    log = _Log(lines, source)
    fatal = log.fatal()
    consequences = [
        error for error in log.reports if error.kind == "consequence" and not log.life.has(error.number)
    ]
    survived = log.survived(failed=(fatal is not None and fatal.kind != "ended") or bool(consequences))
    candidates = log.candidates(fatal, survived)
    first, error = choose(fatal, beginning_of(log.errors), candidates, late=0 if log.loud else LATE)
    if first is None and error is not None and error.kind == "hint":  # it counts if nothing else is logged
        first, error = _unless_ended(error, log.reports)
    quiet = [error for error in log.reports if error.kind in {"hint", "note"} or id(error) in survived]
    beside = log.beside()
    hints = distinct((*quiet, *beside))
    named = () if first is None else after_hint(with_address(first, log.reports), hints)
    also = other_faults(candidates, named)
    if not named and not log.finished and not log.steps.count_after(0) and is_unexplained(error):
        error = complaint_of(log.lines, source, ended=error) or error
    if not named and error is not None and error.kind == "consequence":
        named = explaining(quiet, hints, error)
        error = None if named else error
    reward = next((each for each in (*hints, *also) if is_of_reward(each)), None)
    if reward is not None and log.steps.score_nothing and is_unexplained(error):
        named, error = distinct((reward, *named)), None
    if error is not None and error.kind == "consequence":  # the first of its kind is nearest to the cause
        kind = error.signature
        error = next((each for each in consequences if each.signature == kind), error)
    if not named and error is not None and error.kind == "ended":
        named = awaited(quiet, log.steps, error)
        error = None if named else error
    if not named and error is not None and error.kind == "ended" and error.is_coded:
        named, error = (error,), None
    if not named and error is None and not consequences:
        known = [*quiet, *beside, *(error for error in log.reports if error.kind == "ended")]
        error = shows_failure(log.lines, source, log.steps, known, finished=log.finished)
    if not named and error is None and consequences and not log.finished:  # its remedy states where to look
        error = consequences[0]
    traits = traits_of(log.lines) if named else frozenset()
    where = Located(log.exceptions, log.loud, log.lines, log.steps, trains_from)
    return Reading(
        tuple(_conditioned(where.named(dated(error, log.lines)), log.lines, traits) for error in named),
        None
        if error is None
        else _conditioned(where.judged(dated(error, log.lines), finished=log.finished), log.lines),
        also,
        distinct(consequences),
        tuple(where.beside(hint) for hint in hints if hint not in named),
        len(lines),
        log.finished,
        log.steps.last > 0,
    )


def _unless_ended(
    hint: LoggedError, reports: Sequence[LoggedError]
) -> tuple[LoggedError | None, LoggedError | None]:
    """Return a hint as the first cause, or what ended the job from outside after it, as an error."""
    for report in reports:
        if report.kind == "ended" and report.is_coded and report.number > hint.number:
            return None, report
    return hint, None


def _conditioned(
    error: LoggedError, lines: Sequence[Line], traits: frozenset[str] = frozenset()
) -> LoggedError:
    """Return the error with these traits and the releases that its remedies propose."""
    if error.signature is None:
        return error
    remedies = (error.signature.remedy, *error.signature.at.values())
    return replace(error, traits=traits | releases_in(lines, remedies))


class _Log:
    """What a log reports.

    `reports` are all errors in its order, `errors` those of the exceptions that may have ended the run.

    `lines` are those of the run, `after_end` those after its end. `loud` are the exceptions that may have
    ended it.
    """

    def __init__(self, lines: Sequence[Line], source: str) -> None:
        self.source = source
        lines = without_collected_levels(unprefixed(without_collected_levels(lines)))
        self.lines, self.after_end = parted(
            without_quotations(lines if loud_errors(lines) else unrelayed(lines))
        )
        self.steps = Steps(self.lines)
        self.exceptions = loud_errors(self.lines)
        self.in_lines = list(reports_in_lines(self.lines, self.exceptions, source))
        self.finished = finished_at(self.lines) is not None
        last = self._last_complaint()
        self.life = life_of(self.lines, last if last and self.steps.continued_after(last) else 0)
        self.loud, self._survived = fatal_exceptions(self.exceptions, self.in_lines, self.steps, self.life)
        self.errors = [error_of_chain(raised, self.lines, source) for raised in self.loud]
        self.reports = sorted((*self.errors, *self.in_lines), key=lambda error: error.number)

    def _last_complaint(self) -> int:
        """Return the last line that reports a failure; 0 if there is none."""
        return max(
            (
                *(raised.line.number for raised in self.exceptions),
                *(error.number for error in self.in_lines if error.is_complaint),
                *(raised.line.number for raised in (bare_errors(self.lines) if self.steps.last else ())),
            ),
            default=0,
        )

    def fatal(self) -> LoggedError | None:
        """Return the error that ended the run; None if it finished, or nothing shows what ended it."""
        over = {each.line for raised in self._survived for each in raised.chain}
        lines = [line for line in self.lines if not self.life.has(line.number) and line not in over]
        fatal = fatal_error(self.loud, self.errors, lines, self.lines, self.source)
        if not self.finished:
            return ending_of(fatal, self.in_lines, self.steps)
        # A process that was ended had finished its work.
        return None if fatal is not None and fatal.kind == "ended" else fatal

    def survived(self, *, failed: bool) -> set[int]:
        """Return the ids of the reports that the run survived. If it `failed`, only certain ones."""
        survived = {id(error) for error in survived_reports(self.in_lines, self.steps, SURE if failed else 1)}
        return survived | {id(error) for error in self.in_lines if self.life.has(error.number)}

    def candidates(self, fatal: LoggedError | None, survived: Collection[int]) -> list[LoggedError]:
        """Return the reports that may be the cause. Those after a line that reports the run's end are not."""
        last = fatal.number if fatal is not None and fatal in self.in_lines else math.inf
        return without_aborts(
            [error for error in self.reports if id(error) not in survived and error.number <= last]
        )

    def beside(self) -> list[LoggedError]:
        """Return the exceptions that the run survived, and those after its end."""
        return [
            *(error_of_chain(raised, self.lines, self.source) for raised in self._survived),
            *(error_of_chain(raised, self.after_end, self.source) for raised in loud_errors(self.after_end)),
        ]


def together(readings: Mapping[str, Reading]) -> Reading:
    """Judge several logs of one run: named causes, then unknown errors, then consequences, each by time.

    A fault of the job itself in one log is not explained by a later report in another.
    """
    ordered = sorted(readings.values(), key=lambda reading: (reading.rank, reading.began))
    if not ordered:
        return Reading()
    own = [reading for reading in ordered if reading.error is not None and reading.error.kind == "job"]
    if (
        own
        and ordered[0].causes
        and min(reading.began for reading in own) + _AT_ONCE < ordered[0].began < math.inf
    ):
        ordered = [*own, *(reading for reading in ordered if reading not in own)]
    first = ordered[0].causes
    causes = distinct(cause for reading in ordered for cause in reading.causes) if first else ()
    are_strong = any(error.is_strong for error in first)
    named = tuple(cause for cause in causes if not are_strong or cause.is_strong or cause in first)
    also = distinct(cause for reading in ordered for cause in (*reading.causes, *reading.also))
    finished = any(reading.finished for reading in ordered)
    if finished:  # the ended processes had finished their work
        named = tuple(cause for cause in named if cause.kind != "ended")
    errors = [
        reading.error
        for reading in ordered
        if reading.error is not None and not (finished and reading.error.kind == "ended")
    ]
    return Reading(
        named,
        None if named else next(iter(errors), None),
        tuple(error for error in also if code_of(error) not in {code_of(other) for other in named}),
        distinct(consequence for reading in ordered for consequence in reading.consequences),
        distinct(hint for reading in ordered for hint in reading.hints),
        sum(reading.total for reading in ordered),
        finished,
        any(reading.has_step for reading in ordered),
    )
