"""Finds the complaints of a log that a run survived.

Training continued after them, or after an earlier occurrence of the same complaint.

A sandbox that tries responses raises around every step, and a worker may catch its errors. Neither ended the
run.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from verl_doctor.toolkit.logs.finish import FINISHED
from verl_doctor.toolkit.logs.lines import Line

SURE = 2
"""Steps that a failed run may log after its complaint: lines of several processes arrive late."""

# The metrics of a step as verl, transformers, Megatron, torchtitan and many scripts print them, and verl's
# bar after its first step.
_TRAINING = (
    r"\bstep:\d+ - .*:|\{'loss': .*'epoch': |\biteration +\d+/ *\d+ \||\b[Ss]tep[ :=]+\d+"
    r"(?:/\d+)?\b.{0,40}\bloss\b|Training Progress: +(?:[1-9]\d?|100)%"
)
_BEST_SCORE = re.compile(r"\bcritic/score/max:(-?[\d.]+)")
# The same, and messages of servers that are up.
_STEP = re.compile(
    rf"{_TRAINING}|{FINISHED}|Application startup complete|Uvicorn running on"
    r"|The server is fired up and ready to roll|^Successfully (?:built|installed) \w"
)
_TRAINED = re.compile(_TRAINING)
# What a server that is itself the job prints while it responds.
_RESPONSES = re.compile(r'"POST \S+ HTTP/[\d.]+" 200|Avg prompt throughput: |Decode batch')
_SERVES = re.compile(
    r"Application startup complete|Uvicorn running on|The server is fired up and ready to roll"
    r"|Starting vLLM API server"
)
_OF_RAY = re.compile(r"\w*(?:TaskRunner|WorkerDict|Actor|Worker)\b")
# An event of a pod with its age, as `kubectl describe` prints it: events come in no particular order.
_EVENT = re.compile(r"\b(?P<reason>FailedScheduling|Scheduled|Started) +(?P<age>(?:\d+[dhms])+) ")
_AGE = re.compile(r"(\d+)([dhms])")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NO_DIGITS = str.maketrans("", "", "0123456789")


class Steps:
    """The lines that show that the run continued."""

    def __init__(self, lines: Sequence[Line]) -> None:
        steps = [_STEP]
        if any(_SERVES.search(line.text) for line in lines) and not any(
            _OF_RAY.match(line.process) for line in lines
        ):
            steps.append(_RESPONSES)
        shown = [line for line in lines if any(step.search(line.text) for step in steps)]
        self._numbers = [line.number for line in shown]
        working = (_TRAINED, *steps[1:])
        self._trained = [line.number for line in shown if any(each.search(line.text) for each in working)]

        best = [match[1] for line in shown if (match := _BEST_SCORE.search(line.text))]
        self.score_nothing = bool(best) and not any(score.strip("-0.") for score in best)
        """Whether no response of any step scored more than 0."""
        self._assigned = [
            age for line in lines if (age := _age(line.text, {"Scheduled", "Started"})) is not None
        ]

    def was_scheduled_later(self, words: str) -> bool:
        """Return whether a pod that could not be scheduled was scheduled later, in a younger event."""
        age = _age(words, {"FailedScheduling"})
        return age is not None and any(younger < age for younger in self._assigned)

    def count_after(self, number: int) -> int:
        """Return how many of these lines follow this line."""
        return len(self._numbers) - bisect_right(self._numbers, number)

    @property
    def last(self) -> int:
        """The last of these lines, 0 for none."""
        return self._numbers[-1] if self._numbers else 0

    def continued_after(self, number: int) -> bool:
        """Return whether so many steps follow this line that the run certainly survived what it reports."""
        return len(self._trained) >= SURE and self._trained[-SURE] > number

    def survived(self, errors: Iterable[tuple[int, str]], enough: int) -> Iterator[bool]:
        """Yield for each complaint, in order, whether enough steps follow it.

        A complaint is (line, text). Steps after an earlier occurrence of it count as well.
        """
        known: set[str] = set()
        for number, words in errors:
            key = words.translate(_NO_DIGITS)
            if self.count_after(number) >= enough:
                known.add(key)
            yield key in known


def _age(text: str, reasons: AbstractSet[str]) -> int | None:
    """Return how many seconds ago a pod's event with one of these reasons was; None for another line."""
    found = _EVENT.search(text)
    if found is None or found["reason"] not in reasons:
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in _AGE.findall(found["age"]))
