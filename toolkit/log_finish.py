"""Of a log in which a training came to its end: what its processes say behind that, while all is torn down.

A worker that is ended before its children complains of them, and the run has not failed for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.log_lines import Line

FINISHED = "Final validation metrics"
"""verl's trainers print it behind the last step, its checkpoints and the last validation (verl/trainer/ppo/ray_trainer.py, `fit`)."""

_BEGINS = re.compile(r"ray init kwargs: |\bstep:\d+ - |Training Progress: +\d{1,2}%|Training from scratch")


def finished_at(lines: Sequence[Line]) -> int | None:
    """Where the training came to its end, and no other began behind it."""
    end = next((at for at in reversed(range(len(lines))) if FINISHED in lines[at].text), None)
    if end is None or any(_BEGINS.search(line.text) for line in lines[end + 1 :]):
        return None
    return end


def parted(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """What counts, and what processes of the run say behind its end. A number of a process may be used again by the next run."""
    end = finished_at(lines)
    if end is None:
        return list(lines), []
    of_the_run = {line.process for line in lines[: end + 1] if "pid=" in line.process}
    counts = list(lines[: end + 1])
    behind: list[Line] = []
    for line in lines[end + 1 :]:
        (behind if line.process in of_the_run else counts).append(line)
    return counts, behind
