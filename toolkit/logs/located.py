"""Where in the job an error was raised, where its fault lies, and what helps with it."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from verl_doctor.toolkit.logs.advice import caches, keys, members, memory
from verl_doctor.toolkit.logs.advice.advice import advised
from verl_doctor.toolkit.logs.advice.compiled import CRASH, crashed, kernel
from verl_doctor.toolkit.logs.advice.release_faults import known_fault
from verl_doctor.toolkit.logs.blame import (
    Blame,
    blamed,
    blamed_alone,
    names_exception,
    settings_in,
)
from verl_doctor.toolkit.logs.ending import FOLLOWS
from verl_doctor.toolkit.logs.first_cause import (
    complaint_in,
    follows,
    last_word,
)
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.logged_error import LONGEST, LoggedError
from verl_doctor.toolkit.logs.phase import FIRST_STEP, phase_of, phase_of_line
from verl_doctor.toolkit.logs.python_errors import Raised, bare_errors
from verl_doctor.toolkit.logs.stage import stage_of
from verl_doctor.toolkit.logs.survived import SURE, Steps
from verl_doctor.toolkit.text import without_middle

# What `datasets` logs before an exception that gives no reason.
_REPORT = re.compile(r".*?(Failed to read file '[^']+') with error <class '(?:\w+\.)*(\w+)'>: (.+)")
# What verl logs after it left failed responses out of a batch (verl/trainer/ppo/padding_utils.py).
_PADDED = re.compile(r"Upsampled batch from \d+ to \d+ with (\d+) synthetic padding samples")
_REPORTED_BY = "DatasetGenerationError"
_OVERRIDES = re.compile(r"Could not override '|Error merging override")


class Located:
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
        """Return a known fault with its phase and, if its message names refused settings, with these."""
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
        settings = settings_in(message, code, self._lines)
        if settings and error.signature.code == keys.UNKNOWN and _OVERRIDES.search(message):
            placed = replace(placed, advice=keys.unknown(settings[0]))
        return replace(placed, settings=settings)

    def beside(self, error: LoggedError) -> LoggedError:
        """Return an error that the run survived, with its place in the job's code and what verl did then."""
        found = self._raised.get((error.number, error.process))
        blame = blamed(found[0], self._lines, None) if found is not None else None
        if error.kind not in {"unknown", "job"} or blame is None or blame.fault != "code":
            return error
        padded = (_PADDED.search(line.text) for line in self._lines if line.number > error.number)
        count = next((match[1] for match in padded if match), "")
        return replace(
            error,
            blame=blame,
            then=f"verl then trained with {count} samples of padding in their place" if count else "",
        )

    def judged(self, error: LoggedError, *, finished: bool) -> LoggedError:
        """Return an error outside the environment, with its phase and where the fault lies."""
        found = self._raised.get((error.number, error.process))
        is_open = error.blame is None and error.kind in {"unknown", "job"}
        # What the driver raises after the training, in its last words, ended the script.
        survived = (finished and not self._is_last_word(found)) or self._goes_on()
        if survived or not is_open:
            return error if error.kind == "ended" else self.placed(error)
        placed = replace(self.placed(error), phase="end") if finished else self.placed(error)
        if found is None:
            alone = self._alone.get((error.number, error.process))
            if alone is not None and follows(alone):
                return replace(placed, signature=placed.signature or FOLLOWS)
            is_reported = alone is not None or (error.kind == "unknown" and names_exception(error.words))
            if not is_reported:
                return placed
            words = alone.message if alone is not None else error.words
            specific = self._specific(alone, None) if alone is not None else ""
            is_known = _is_answered(placed) or bool(specific)
            advice = advised(alone, self._lines, is_known=is_known) if alone is not None else ""
            return replace(placed, blame=blamed_alone(words, self._lines), advice=advice, specific=specific)
        blame = blamed(found[0], self._lines, placed.phase)
        if blame is not None and blame.fault == "code" and (package := members.package_of_member(found[0])):
            blame = Blame("program", place=blame.place, raised_by=package, is_of_release=True)
        if blame is not None and blame.announced is not None:
            placed = replace(placed, lines=(blame.announced.written[:LONGEST], *placed.lines))
        is_refusal = blame is not None and bool(blame.settings)
        specific = self._specific(found[0], blame)
        is_known = _is_answered(placed) or bool(specific)
        is_general = placed.signature is not None and placed.signature.named
        advice = advised(
            found[0], self._lines, is_known=is_known, is_general=is_general, is_refusal=is_refusal
        )
        shown = _with_report(_with_code(placed, found[0]), found[0], self._lines)
        return replace(shown, blame=blame, advice=advice, specific=specific)

    def _specific(self, raised: Raised, blame: Blame | None) -> str:
        """Return what helps with this very exception, whatever signature matches it.

        No release mends the user's own code.
        """
        if blame is not None and blame.fault == "code":
            return ""
        return (
            known_fault(raised, self._lines)
            or kernel(raised)
            or memory.held(raised)
            or caches.moved_by(raised)
        )

    def _is_last_word(self, found: tuple[Raised, Raised] | None) -> bool:
        return found is not None and found[1] is self._end and not found[1].line.process

    def _goes_on(self) -> bool:
        """Return whether steps were logged after the last exception.

        If so, the job survived it, whichever process raised it.
        """
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
        words=without_middle(f"{error.words}: {code}", LONGEST),
        lines=(*error.lines[:-1], f"    {code}", *error.lines[-1:]),
    )


def _with_report(error: LoggedError, raised: Raised, lines: Sequence[Line]) -> LoggedError:
    """Return a data set's error with the file that was read and the reason, which an earlier line states."""
    if raised.name != _REPORTED_BY:
        return error
    before = lines[: bisect_right(lines, raised.began, key=lambda line: line.number)]
    report = next(
        ((line, found) for line in reversed(before) if (found := _REPORT.match(line.text)) is not None), None
    )
    if report is None:
        return error
    line, found = report
    return replace(
        error,
        words=without_middle(f"{found[2]}: {found[3]} ({found[1]})", LONGEST),
        lines=(line.written[:LONGEST], *error.lines),
    )
