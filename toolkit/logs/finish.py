"""Of a log in which a training came to its end, or goes on: what it lived through.

What its processes say while all is torn down is no failure: a worker that is ended before its children complains of them. Nor is what
was said before: whoever complained, the run bore it. An earlier run in the same log that failed is another matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import OVERRIDES

FINISHED = "Final validation metrics"
"""verl's trainers print it behind the last step, its checkpoints and the last validation (verl/trainer/ppo/ray_trainer.py, `fit`)."""

_RUNNER = re.compile(r"\w*TaskRunner\b|main_task\b")
_CONNECTS = "ray init kwargs: "
_BEGINS = re.compile(r"ray init kwargs: |\bstep:\d+ - |Training Progress: +\d{1,2}%|Training from scratch")


def finished_at(lines: Sequence[Line]) -> int | None:
    """Where the training came to its end, and no other began behind it."""
    end = next((at for at in reversed(range(len(lines))) if FINISHED in lines[at].text), None)
    if end is None or any(_BEGINS.search(line.text) for line in lines[end + 1 :]):
        return None
    return end


@dataclass(frozen=True)
class Life:
    """The lines of a run that came to its end or goes on: behind `begin`, up to `end`. Nothing that it says there has ended it."""

    begin: int = 0
    end: int = 0

    def has(self, number: int) -> bool:
        """Whether a line lies within it."""
        return self.begin < number <= self.end


def life_of(lines: Sequence[Line], goes_on: int = 0) -> Life:
    """That of the last run of a log. `goes_on` is the line up to which it went on for sure, where it has not come to its end."""
    at = finished_at(lines)
    end = goes_on if at is None else lines[at].number
    before = [line for line in lines if line.number <= end]
    failed = [line.number for line in before if line.text.startswith(OVERRIDES)]
    began = [line.number for line in before if line.text.startswith(_CONNECTS)]
    begin = began[-1] if len(began) > 1 else 0
    if failed and failed[-1] > begin:  # that run ended there, whatever began behind it
        begin = next((number for number in began if number > failed[-1]), end)
    return Life(begin, end)


def parted(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """What counts, and what Ray and the workers of the run say behind its end. A task runner with another number is of another run."""
    end = finished_at(lines)
    if end is None:
        return list(lines), []
    runners = {line.process for line in lines[: end + 1] if _RUNNER.match(line.process)}
    counts = list(lines[: end + 1])
    behind: list[Line] = []
    for line in lines[end + 1 :]:
        (behind if _is_of_the_run(line.process, runners) else counts).append(line)
    return counts, behind


def _is_of_the_run(process: str, runners: AbstractSet[str]) -> bool:
    """Whether a process is one of Ray's workers or servers that are ended behind the run."""
    if _RUNNER.match(process):
        return process in runners
    return "pid=" in process or process in {"raylet", "autoscaler", "gcs_server"}
