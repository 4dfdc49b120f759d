"""Finds the first cause in logs: combines the first error (`first_cause`) with the faults that known texts prove (`signature`).

An error without a signature has no named cause. A fault of the environment is named if it is the error that ended the
run, or if the run's end shows only a consequence and the fault was logged earlier. Other findings are reported
separately. A complaint that the run survived is not a cause: training continued after it, or the complaint itself
states that it has no consequences. Neither is a repetition of the same complaint, except as the program's last
output.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from verl_doctor.toolkit.logs.advice.advice import advised
from verl_doctor.toolkit.logs.advice.compiled import CRASH, crashed, kernel
from verl_doctor.toolkit.logs.advice.release_faults import known_fault
from verl_doctor.toolkit.logs.blame import (
    Blame,
    blamed,
    blamed_alone,
    blamed_complaint,
    names_exception,
    settings_in,
)
from verl_doctor.toolkit.logs.conditions import traits_of
from verl_doctor.toolkit.logs.excerpt import GOES_ON, has_word
from verl_doctor.toolkit.logs.failed import failure_in
from verl_doctor.toolkit.logs.finish import Life, finished_at, life_of, parted
from verl_doctor.toolkit.logs.first_cause import (
    cause_of,
    complaint_in,
    death_in,
    first_error,
    follows,
    is_loud,
    last_word,
    loud_errors,
    refused_argument,
)
from verl_doctor.toolkit.logs.lines import Line, unrelayed, without_collected_levels
from verl_doctor.toolkit.logs.phase import FIRST_STEP, phase_of, phase_of_line, phase_of_process
from verl_doctor.toolkit.logs.prefix import unprefixed
from verl_doctor.toolkit.logs.python_errors import LOOKUPS, OVERRIDES, Raised, bare_errors
from verl_doctor.toolkit.logs.quoted import without_quotations
from verl_doctor.toolkit.logs.signature import Kind, Signature, which
from verl_doctor.toolkit.logs.stage import stage_of
from verl_doctor.toolkit.logs.survived import SURE, Steps
from verl_doctor.toolkit.logs.timeline.clock import Clock
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.text import clipped

_FRAME = '  File "'
_THROWN = "terminate called after throwing an instance of "
_WHAT = "  what(): "
_NEAR = 200  # lines before an unknown error in which its own process may have logged the reason
_END = 100  # lines at the end of a log, which always count
_LONGEST = 400
_AT_ONCE = 1.0  # second: clocks of nodes differ, and lines arrive late
_LATE = 10  # lines by which a child process's output may trail its parent's exception
_OUTPUT = 60  # lines of a compiler's output below the exception that reports its failure
_COMPILED = re.compile(
    r"CppCompileError|C\+\+ compile error|Error building extension|Failed to compile|codegen error"
)
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{2,5}\b|\bport[ =:]{1,3}\d{2,5}\b")
_OF_NCCL = "NET130"  # the code of faults that only NCCL's last warning shows
_OF_REWARD = "LOG272"  # the code of rewards that fail, which verl then counts as 0
_REASONLESS = re.compile(
    r"unhandled (?:system|cuda) error|nccl\w*(?:System|Internal|Unhandled)\w*Error|NCCL [Ee]rror \d|NCCL error: (?:invalid|internal)"
)
# By code: the failures that a note explains. A note with another code explains every failure.
_EXPLAINED = {_OF_NCCL: _REASONLESS, "LOG271": re.compile(r"device-side assert|\b[Nn]a[Nn]\b")}
_INNER = "See inner exception"
_WRAPPED = re.compile(r"failed with (?:error|exception)[: ]+['\"](.+)")
_ABORTED = re.compile(r"exit ?code *[:=]? *(?:-6|134)\b|return code = -6|SIGABRT|: Aborted")
# Phrases with which programs report a loss that they can bear.
_TOLERATED = re.compile(
    r"silence this warning|[Ff]alling back|[Ff]all back to|[Ff]allback to|[Ss]kipping|will be (?:disabled|ignored)|is ignored|[Ii]gnoring|^Ignore \w+ error"
)


@dataclass(frozen=True)
class LoggedError:
    """One report in a log: where, by which process, in which words, and what these are known to prove."""

    source: str
    number: int
    process: str
    words: str
    lines: tuple[str, ...]
    signature: Signature | None = None
    times: int = 1
    when: float = math.inf
    """On the scale of `timeline.clock`, as far as the lines before it show."""
    phase: Phase | None = None
    """When it struck, as far as the log shows."""
    blame: Blame | None = None
    """Where the fault lies, for an exception that no signature attributes to the environment."""
    settings: tuple[str, ...] = ()
    """The settings that a refusal names, where a signature matches it."""
    stage: str = ""
    """The stage of the job, if a signature has a remedy for it."""
    traits: frozenset[str] = frozenset()
    """What the log reveals about the machine: a remedy must not contradict it."""
    specific: str = ""
    """The releases without a known fault that the exception shows, or how to find the kernel that failed: it precedes any remedy."""
    advice: str = ""
    """The advice derived from the exception itself, if there is no remedy or only a general one."""

    @property
    def kind(self) -> Kind | Literal["unknown"]:
        """What it is known to prove."""
        return "unknown" if self.signature is None else self.signature.kind

    @property
    def is_complaint(self) -> bool:
        """Whether it reports that something failed or was ended."""
        return self.kind not in {"hint", "note"}

    @property
    def is_coded(self) -> bool:
        """Whether it has its own page of documentation."""
        return self.signature is not None and bool(self.signature.code)

    @property
    def is_strong(self) -> bool:
        """Whether it is a cause by itself."""
        return self.kind == "cause"


@dataclass(frozen=True)
class Reading:
    """The diagnosis of one log. `causes` are named faults, the first cause first; `error` is the first error if it is none of them."""

    causes: tuple[LoggedError, ...] = ()
    error: LoggedError | None = None
    also: tuple[LoggedError, ...] = ()
    consequences: tuple[LoggedError, ...] = ()
    hints: tuple[LoggedError, ...] = ()
    total: int = 0
    finished: bool = False
    """Whether a training finished in it."""

    @property
    def first(self) -> LoggedError | None:
        """The first cause: a named fault, or an exception that shows where the fault lies. None if the log has neither."""
        if self.causes:
            return self.causes[0]
        return self.error if self.error is not None and self.error.blame is not None else None

    @property
    def rank(self) -> int:
        """The rank of this log among several of a run: 0 for a fault that is a cause by itself, 3 for a consequence."""
        if self.causes:
            return 0 if any(cause.is_strong for cause in self.causes) else 2
        return 1 if self.error is not None and not _only_follows(self.error) else 3

    @property
    def began(self) -> float:
        """When the first error was reported; infinite if unknown."""
        first = self.causes[0] if self.causes else self.error
        return math.inf if first is None else first.when


def read(lines: Sequence[Line], source: str, trains_from: float | None = None) -> Reading:
    """Judge one log. Output of the run's processes after its end is kept separately.

    `trains_from` is the line in which the first step begins, infinite for none; by default the lines are searched for it.
    """
    log = _Log(lines, source)
    fatal = log.fatal()
    consequences = [
        error for error in log.reports if error.kind == "consequence" and not log.life.has(error.number)
    ]
    survived = log.survived(failed=(fatal is not None and fatal.kind != "ended") or bool(consequences))
    candidates = log.candidates(fatal, survived)
    first, error = _choose(fatal, _began(log.errors), candidates, late=0 if log.loud else _LATE)
    quiet = [error for error in log.reports if error.kind in {"hint", "note"} or id(error) in survived]
    beside = log.beside()
    hints = _distinct((*quiet, *beside))
    named = () if first is None else _after_hint(_with_address(first, log.reports), hints)
    also = _others(candidates, named)
    if not named and not log.finished and not log.steps.count_after(0) and _is_unexplained(error):
        error = _complained(log.lines, source, ended=error) or error
    if not named and error is not None and error.kind == "consequence":
        named = _explaining(quiet, hints, error)
        error = None if named else error
    reward = next((each for each in (*hints, *also) if _is_of_reward(each)), None)
    if reward is not None and log.steps.score_nothing and _is_unexplained(error):
        named, error = _distinct((reward, *named)), None
    if not named and error is not None and error.kind == "ended":
        named = _awaited(quiet, log.steps, error)
        error = None if named else error
    if not named and error is not None and error.kind == "ended" and error.is_coded:
        named, error = (error,), None
    if not named and error is None and not consequences:
        known = [*quiet, *beside, *(error for error in log.reports if error.kind == "ended")]
        error = _failed(log.lines, source, log.steps, known, finished=log.finished)
    traits = traits_of(log.lines) if named else frozenset()
    where = _Where(log.exceptions, log.loud, log.lines, log.steps, trains_from)
    return Reading(
        tuple(replace(where.named(_dated(error, log.lines)), traits=traits) for error in named),
        None if error is None else where.judged(_dated(error, log.lines), finished=log.finished),
        also,
        _distinct(consequences),
        tuple(hint for hint in hints if hint not in named),
        len(lines),
        log.finished,
    )


class _Log:
    """What a log reports: `reports` are all errors in its order, `errors` those of the exceptions that may have ended the run.

    `lines` are those of the run, `after_end` those after its end. `loud` are the exceptions that may have ended it.
    """

    def __init__(self, lines: Sequence[Line], source: str) -> None:
        self.source = source
        lines = without_collected_levels(unprefixed(without_collected_levels(lines)))
        self.lines, self.after_end = parted(
            without_quotations(lines if loud_errors(lines) else unrelayed(lines))
        )
        self.steps = Steps(self.lines)
        self.exceptions = loud_errors(self.lines)
        self.in_lines = list(_in_lines(self.lines, self.exceptions, source))
        self.finished = finished_at(self.lines) is not None
        last = self._last_complaint()
        self.life = life_of(self.lines, last if last and self.steps.continued_after(last) else 0)
        self.loud, self._survived = _fatal_exceptions(self.exceptions, self.in_lines, self.steps, self.life)
        self.errors = [_of_chain(raised, self.lines, source) for raised in self.loud]
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
        fatal = _fatal(self.loud, self.errors, lines, self.lines, self.source)
        if not self.finished:
            return _ending(fatal, self.in_lines, self.steps)
        # A process that was ended had finished its work.
        return None if fatal is not None and fatal.kind == "ended" else fatal

    def survived(self, *, failed: bool) -> set[int]:
        """Return the ids of the reports that the run survived. If it `failed`, only certain ones."""
        survived = {
            id(error) for error in _survived_reports(self.in_lines, self.steps, SURE if failed else 1)
        }
        return survived | {id(error) for error in self.in_lines if self.life.has(error.number)}

    def candidates(self, fatal: LoggedError | None, survived: Collection[int]) -> list[LoggedError]:
        """Return the reports that may be the cause. Those after a line that reports the run's end are not."""
        last = fatal.number if fatal is not None and fatal in self.in_lines else math.inf
        return _without_aborts(
            [error for error in self.reports if id(error) not in survived and error.number <= last]
        )

    def beside(self) -> list[LoggedError]:
        """Return the exceptions that the run survived, and those after its end."""
        return [
            *(_of_chain(raised, self.lines, self.source) for raised in self._survived),
            *(_of_chain(raised, self.after_end, self.source) for raised in loud_errors(self.after_end)),
        ]


def _after_hint(fault: LoggedError, hints: Sequence[LoggedError]) -> tuple[LoggedError, ...]:
    """Return a fault, after the first hint that leads to it."""
    before = [hint for hint in hints if _leads_to(hint, fault)]
    return _distinct((*before[:1], fault))


def _others(candidates: Sequence[LoggedError], named: Sequence[LoggedError]) -> tuple[LoggedError, ...]:
    """Return the other faults that were logged, those that are causes by themselves first."""
    faults = [error for error in candidates if error.kind in {"cause", "weak"}]
    return tuple(
        error
        for error in _distinct(sorted(faults, key=lambda error: not error.is_strong))
        if not any(_code(error) == _code(other) for other in named)
    )


def _explaining(
    notes: Sequence[LoggedError], hints: Sequence[LoggedError], failure: LoggedError
) -> tuple[LoggedError, ...]:
    """Return the last note that explains a failure, after the first hint that leads to it; nothing if there is none."""
    explaining = [note for note in notes if _leads_to_failure(note, failure)]
    if not explaining:
        return ()
    *before, last = _after_hint(explaining[-1], hints)
    if last.kind == "hint":  # it reports a state, which begins with its first occurrence
        last = next(note for note in explaining if _code(note) == _code(last))
    return (*before, last)


def _awaited(notes: Sequence[LoggedError], steps: Steps, ended: LoggedError) -> tuple[LoggedError, ...]:
    """Return the first note that explains why a run made no step until it was ended from outside; nothing if there is none."""
    waited = (
        note
        for note in notes
        if note.kind == "note" and _leads_to(note, ended) and not steps.count_after(note.number)
    )
    return tuple(islice(waited, 1))


def _is_unexplained(error: LoggedError | None) -> bool:
    """Return whether no error, or only a consequence, shows why the run failed."""
    return error is None or _only_follows(error)


def _complained(lines: Sequence[Line], source: str, ended: LoggedError | None) -> LoggedError | None:
    """Return the last output of a program that raised nothing; if another process noticed its end, the argument that it refused."""
    cause, phase = complaint_in(lines) or (None, None) if ended is None else (refused_argument(lines), None)
    if cause is None or (ended is not None and cause.number > ended.number):
        return None
    if cause.process:
        phase = phase_of_process(cause.process)
    blame = blamed_complaint(cause.words, phase)
    return LoggedError(
        source, cause.number, cause.process, cause.words, cause.lines, phase=phase, blame=blame
    )


def _failed(
    lines: Sequence[Line], source: str, steps: Steps, known: Sequence[LoggedError], *, finished: bool
) -> LoggedError | None:
    """Return what shows that the run failed if nothing in the log is a cause or a consequence."""
    numbers = {error.number for error in known}
    rest = [line for line in lines if line.number not in numbers]
    cause = failure_in(rest, steps.last, finished=finished)
    return (
        None if cause is None else LoggedError(source, cause.number, cause.process, cause.words, cause.lines)
    )


class _Where:
    """Where in the job an error of the log was raised."""

    def __init__(
        self,
        every: Sequence[Raised],
        loud: Sequence[Raised],
        lines: Sequence[Line],
        steps: Steps,
        trains_from: float | None,
    ) -> None:
        self._raised = {
            (each.line.number, each.line.process): (each, raised) for raised in every for each in raised.chain
        }
        self._alone = {(raised.line.number, raised.line.process): raised for raised in bare_errors(lines)}
        self._end = last_word(loud) if loud else None
        self._lines = lines
        self._steps = steps
        if trains_from is None:
            trains_from = next((line.number for line in lines if FIRST_STEP in line.text), math.inf)
        self._trains_from = trains_from
        self._complaint = None if loud else complaint_in(lines)

    def placed(self, error: LoggedError) -> LoggedError:
        """Return the error with its phase. What ended the driver shows how far the job got."""
        at = bisect_right(self._lines, error.number, key=lambda line: line.number)
        if error.phase is not None:
            return error
        if (found := self._raised.get((error.number, error.process))) is not None:
            return replace(
                error, phase=phase_of(found[1], self._end, trains=self._trains_from < error.number)
            )
        if self._complaint is not None and error.number == self._complaint[0].number:
            return replace(error, phase=self._complaint[1])
        return replace(error, phase=phase_of_line(self._lines[at - 1]) if at else None)

    def named(self, error: LoggedError) -> LoggedError:
        """Return a known fault with its phase and, if settings are refused, with the settings that its message names."""
        placed = self.placed(error)
        found = self._raised.get((error.number, error.process))
        if found is not None:
            placed = replace(placed, specific=self._specific(found[0], error.blame))
        if error.signature is not None and error.signature.named:
            raised = found[0] if found is not None else self._alone.get((error.number, error.process))
            placed = replace(placed, advice=advised(raised, self._lines) if raised is not None else "")
        if error.signature is not None and error.signature.code == CRASH:
            placed = replace(placed, advice=crashed(error.number, self._lines))
        if error.signature is not None and error.signature.at:
            chains = [each for each in (found and found[1], self._end) if each is not None]
            return replace(placed, stage=next(filter(None, map(stage_of, chains)), ""))
        if error.signature is None or not error.signature.is_of_settings:
            return placed
        code = found[0].frames[-1].code if found is not None and found[0].frames else ""
        message = found[0].message if found is not None else error.words
        return replace(placed, settings=settings_in(message, code, self._lines))

    def judged(self, error: LoggedError, *, finished: bool) -> LoggedError:
        """Return an error outside the environment, with its phase and where the fault lies."""
        found = self._raised.get((error.number, error.process))
        is_open = error.blame is None and error.kind in {"unknown", "job"}
        if finished or self._goes_on() or not is_open:
            return error if error.kind == "ended" else self.placed(error)
        placed = self.placed(error)
        if found is None:
            alone = self._alone.get((error.number, error.process))
            if alone is not None and follows(alone):
                return replace(placed, signature=placed.signature or _FOLLOWS)
            is_reported = alone is not None or (error.kind == "unknown" and names_exception(error.words))
            if not is_reported:
                return placed
            words = alone.message if alone is not None else error.words
            specific = self._specific(alone, None) if alone is not None else ""
            is_known = _is_answered(placed) or bool(specific)
            advice = advised(alone, self._lines, is_known=is_known) if alone is not None else ""
            return replace(placed, blame=blamed_alone(words, self._lines), advice=advice, specific=specific)
        blame = blamed(found[0], self._lines, placed.phase)
        if blame is not None and blame.announced is not None:
            placed = replace(placed, lines=(blame.announced.written[:_LONGEST], *placed.lines))
        is_refusal = blame is not None and bool(blame.settings)
        specific = self._specific(found[0], blame)
        is_known = _is_answered(placed) or bool(specific)
        is_general = placed.signature is not None and placed.signature.named
        advice = advised(
            found[0], self._lines, is_known=is_known, is_general=is_general, is_refusal=is_refusal
        )
        return replace(_with_code(placed, found[0]), blame=blame, advice=advice, specific=specific)

    def _specific(self, raised: Raised, blame: Blame | None) -> str:
        """Return what helps with this very exception, whatever signature matches it. No release mends the user's own code."""
        if blame is not None and blame.fault == "code":
            return ""
        return known_fault(raised, self._lines) or kernel(raised)

    def _goes_on(self) -> bool:
        """Return whether steps were logged after the last exception: the job survived it, whichever process raised it."""
        if self._end is None:
            return False
        return self._steps.count_after(self._end.line.number) >= (1 if self._end.line.process else SURE)


def _is_answered(error: LoggedError) -> bool:
    """Return whether a signature has a remedy for the error."""
    return error.signature is not None and bool(error.signature.remedy)


def _with_code(error: LoggedError, raised: Raised) -> LoggedError:
    """Return the error with the source line of an exception that has no message."""
    code = raised.frames[-1].code if raised.frames else ""
    if raised.message or not code:
        return error
    return replace(
        error,
        words=clipped(f"{error.words}: {code}", _LONGEST),
        lines=(*error.lines[:-1], f"    {code}", *error.lines[-1:]),
    )


def _fatal_exceptions(
    every: Sequence[Raised], in_lines: Sequence[LoggedError], steps: Steps, life: Life
) -> tuple[list[Raised], list[Raised]]:
    """Return the exceptions that may have ended the run, and those that it survived.

    The program's last output counts unless training continued after it. An exception raised once counts unless the
    run was ended from outside.
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


def _ending(fatal: LoggedError | None, in_lines: Sequence[LoggedError], steps: Steps) -> LoggedError | None:
    """Return the error that ended the run, or the line that reports that the run was ended from outside before anything failed."""
    first = next(
        (error for error in in_lines if error.kind == "ended" and steps.count_after(error.number) < SURE),
        None,
    )
    if fatal is not None and fatal.kind == "ended" and steps.count_after(fatal.number) >= SURE:
        fatal = None
    if first is None:
        return fatal
    if fatal is not None:
        is_near = 0 < fatal.number - first.number <= _NEAR
        follows_it = fatal.kind in {"consequence", "weak", "ended"} and is_near and not first.process
        return first if follows_it else fatal
    failed_before = any(
        error.kind == "consequence" and error.number < first.number and not steps.count_after(error.number)
        for error in in_lines
    )
    return None if failed_before else first


def _survived_reports(in_lines: Sequence[LoggedError], steps: Steps, enough: int) -> list[LoggedError]:
    """Return the reports outside tracebacks that the run survived. An early hint may still turn out to be the cause."""
    over = steps.survived(((error.number, error.words) for error in in_lines), enough)
    return [
        error
        for error, is_over in zip(in_lines, over, strict=True)
        if (is_over and (error.kind in {"cause", "weak"} or steps.count_after(error.number) >= enough))
        or steps.was_scheduled_later(error.words)
    ]


def _without_aborts(errors: Sequence[LoggedError]) -> list[LoggedError]:
    """Return the errors without the deaths of processes that aborted because of an earlier error."""
    first = next((error.number for error in errors if error.kind == "consequence"), math.inf)
    return [
        error
        for error in errors
        if not (error.kind == "weak" and error.number > first and _ABORTED.search(error.words))
    ]


def _choose(
    fatal: LoggedError | None, began: LoggedError | None, errors: Sequence[LoggedError], *, late: int
) -> tuple[LoggedError | None, LoggedError | None]:
    """Return the named first cause, or the error that has none.

    `fatal` is the error that ended the run; `began` is the first of the exceptions with which processes ended, except
    for those that only follow. Up to `late` lines after an unknown error may still explain it.
    """
    strong = [error for error in errors if error.is_strong]
    weak = [error for error in errors if error.kind == "weak"]
    if fatal is None or _only_follows(fatal):
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
        return fatal, None
    if fatal.kind == "weak":
        before = [error for error in strong if error.number <= fatal.number + _LATE]
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


def _began(errors: Sequence[LoggedError]) -> LoggedError | None:
    """Return the first of the processes' last exceptions, except for those that only follow."""
    last = {error.process: error for error in errors if not _only_follows(error)}
    return min(last.values(), key=lambda error: error.number, default=None)


def _leads_to(hint: LoggedError, fault: LoggedError) -> bool:
    """Return whether a hint was logged before a fault that may result from it."""
    if hint.signature is None or fault.signature is None or hint.number > fault.number:
        return False
    return not {fault.signature.code, fault.kind}.isdisjoint(hint.signature.leads_to)


def _leads_to_failure(note: LoggedError, failure: LoggedError) -> bool:
    """Return whether a note explains an unexplained failure of another process or NCCL. Most NCCL warnings are harmless."""
    if note.signature is None or "consequence" not in note.signature.leads_to or note.number > failure.number:
        return False
    explained = _EXPLAINED.get(note.signature.code)
    return explained is None or explained.search(failure.words) is not None


def _is_of_reward(error: LoggedError) -> bool:
    return error.signature is not None and error.signature.code == _OF_REWARD


def _explains(error: LoggedError, fatal: LoggedError) -> bool:
    """Return whether a known fault was logged before an unknown error: shortly before by the same process, or as an error of another."""
    if error.number > fatal.number:
        return False
    return error.process != fatal.process or fatal.number - error.number <= _NEAR


def _only_follows(error: LoggedError) -> bool:
    return error.kind in {"consequence", "ended"}


def _fatal(
    loud: Sequence[Raised],
    errors: Sequence[LoggedError],
    fatal_lines: Sequence[Line],
    lines: Sequence[Line],
    source: str,
) -> LoggedError | None:
    """Return the original error, or the death of a process. `fatal_lines` are the lines that the run did not survive."""
    first = first_error(loud)
    if first is None:
        death = death_in(fatal_lines)
        if death is not None:
            return _known(LoggedError(source, death.number, death.process, death.words, death.lines))
        bare = [raised for raised in bare_errors(fatal_lines) if is_loud(raised.line)]
        return _last_known(bare, lines, source)
    if not follows(first):
        # The whole chain of the program's last exception: intermediate exceptions may reveal more.
        last = last_word(loud)
        end = next(error for error, raised in zip(errors, loud, strict=True) if raised is last)
        own = _error_of(first, lines, source)
        if own.signature is None and end.signature is not None and not follows(last.first):
            return end
        return own
    death = death_in(fatal_lines)
    if death is not None:
        return _known(LoggedError(source, death.number, death.process, death.words, death.lines))
    own_error = _error_of(first, lines, source)
    return own_error if own_error.signature is not None else replace(own_error, signature=_FOLLOWS)


_FOLLOWS = Signature("", "consequence", "Another process ended, and this one noticed it", ())


def _last_known(errors: Sequence[Raised], lines: Sequence[Line], source: str) -> LoggedError | None:
    """Return the last known exception, otherwise the last of all; None if there is none."""
    last: LoggedError | None = None
    for error in reversed(errors):
        last_error = _error_of(error, lines, source)
        if last_error.signature is not None:
            return last_error
        last = last or last_error
    return last


def _of_chain(raised: Raised, lines: Sequence[Line], source: str) -> LoggedError:
    """Return one error for a chain of exceptions: the original one if it is known.

    Otherwise return the first of the others, from the innermost, that is known and more than a consequence; failing
    that, the original one, unknown.
    """
    first = raised.first
    began = _error_of(first, lines, source)
    if began.signature is not None:
        return began
    others = (
        _error_of(each, lines, source)
        for each in reversed(list(raised.chain))
        if each is not first and each.name not in LOOKUPS
    )
    known = (each for each in others if each.signature is not None and each.kind != "consequence")
    return next(known, began)


def _error_of(raised: Raised, lines: Sequence[Line], source: str) -> LoggedError:
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
    return LoggedError(source, cause.number, cause.process, cause.words, cause.lines, signature)


def _known(error: LoggedError) -> LoggedError:
    return replace(error, signature=which(error.words))


def _in_lines(lines: Sequence[Line], loud: Sequence[Raised], source: str) -> Iterator[LoggedError]:
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
            clipped(words, _LONGEST),
            tuple(other.written[:_LONGEST] for other in lines[at : at + 1 + signature.quotes]),
            signature,
        )


def _counts(signature: Signature, line: Line) -> bool:
    """Return whether a line that no logger marks as an error counts for this signature."""
    return signature.kind in {"hint", "note"} or (signature.warning and line.level == "WARNING")


def _code(error: LoggedError) -> tuple[str, str]:
    return (error.signature.code, error.signature.title) if error.signature is not None else ("", error.words)


def _distinct(errors: Iterable[LoggedError]) -> tuple[LoggedError, ...]:
    """Return each report once, where it was first logged, with the number of occurrences."""
    found: dict[tuple[str, str], LoggedError] = {}
    for error in errors:
        known = found.setdefault(_code(error), error)
        if known is not error:
            found[_code(error)] = replace(known, times=known.times + 1)
    return tuple(found.values())


def _with_address(error: LoggedError, errors: Sequence[LoggedError]) -> LoggedError:
    """Return the error with another line of the same fault that contains the address, if its own lines do not."""
    if any(_ADDRESS.search(line) for line in error.lines):
        return error
    same = (other.lines for other in errors if _code(other) == _code(error))
    with_address = next((line for lines in same for line in lines if _ADDRESS.search(line)), None)
    return error if with_address is None else replace(error, lines=(*error.lines, with_address))


def _dated(error: LoggedError, lines: Sequence[Line]) -> LoggedError:
    """Return the error with the time of its line, or the nearest time before it."""
    at = bisect_right(lines, error.number, key=lambda line: line.number)
    near = (Clock().read(line.written) for line in reversed(lines[max(at - _NEAR, 0) : at]))
    return replace(error, when=next((time for time in near if time is not None), math.inf))


def together(readings: Mapping[str, Reading]) -> Reading:
    """Judge several logs of one run: named causes before unknown errors, and those before consequences, each by time.

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
    causes = _distinct(cause for reading in ordered for cause in reading.causes) if first else ()
    are_strong = any(error.is_strong for error in first)
    named = tuple(cause for cause in causes if not are_strong or cause.is_strong or cause in first)
    also = _distinct(cause for reading in ordered for cause in (*reading.causes, *reading.also))
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
        tuple(error for error in also if _code(error) not in {_code(other) for other in named}),
        _distinct(consequence for reading in ordered for consequence in reading.consequences),
        _distinct(hint for reading in ordered for hint in reading.hints),
        sum(reading.total for reading in ordered),
        finished,
    )
