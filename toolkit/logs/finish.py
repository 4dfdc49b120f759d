"""Of a log in which a training came to its end: what its processes say behind that, while all is torn down.

A worker that is ended before its children complains of them, and the run has not failed for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from verl_doctor.toolkit.logs.lines import Line

FINISHED = "Final validation metrics"
"""verl's trainers print it behind the last step, its checkpoints and the last validation (verl/trainer/ppo/ray_trainer.py, `fit`)."""

_RUNNER = re.compile(r"\w*TaskRunner\b|main_task\b")
_BEGINS = re.compile(r"ray init kwargs: |\bstep:\d+ - |Training Progress: +\d{1,2}%|Training from scratch")


def finished_at(lines: Sequence[Line]) -> int | None:
    """Where the training came to its end, and no other began behind it."""
    end = next((at for at in reversed(range(len(lines))) if FINISHED in lines[at].text), None)
    if end is None or any(_BEGINS.search(line.text) for line in lines[end + 1 :]):
        return None
    return end


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
