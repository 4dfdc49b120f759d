"""Which complaints a run survived that finished its training or is still running.

Output of its processes during shutdown is no failure: a worker that ends before its children complains about
them. Neither is anything before that, since the run survived it. A failed earlier run in the same log is
separate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import OVERRIDES

FINISHED = "Final validation metrics"
"""What verl's trainers print after the last step, its checkpoints and the last validation.

See `fit` in verl/trainer/ppo/ray_trainer.py.
"""

_RUNNER = re.compile(r"\w*TaskRunner\b|main_task\b")
_CONNECTS = "ray init kwargs: "
# How a server of vLLM reports that it was asked to stop, and the processes that it then ends.
_STOPPED = re.compile(r"\[shutdown\] \w+: trigger received signal=SIG(?:TERM|INT)\b")
_OF_SERVER = re.compile(r"APIServer|EngineCore|(?:Vllm)?Worker")
_BEGINS = re.compile(r"ray init kwargs: |\bstep:\d+ - |Training Progress: +\d{1,2}%|Training from scratch")


def finished_at(lines: Sequence[Line]) -> int | None:
    """Return the line at which the training finished, if no other began after it."""
    end = next((at for at in reversed(range(len(lines))) if FINISHED in lines[at].text), None)
    if end is None or any(_BEGINS.search(line.text) for line in lines[end + 1 :]):
        return None
    return end


@dataclass(frozen=True)
class Life:
    """The lines of a run that finished or is still running: after `begin`, up to `end`.

    Nothing in them ended it.
    """

    begin: int = 0
    end: int = 0

    def has(self, number: int) -> bool:
        """Return whether a line is within it."""
        return self.begin < number <= self.end


def life_of(lines: Sequence[Line], goes_on: int = 0) -> Life:
    """Return the life of a log's last run.

    `goes_on` is the line up to which a run that has not finished certainly continued.
    """
    at = finished_at(lines)
    end = goes_on if at is None else lines[at].number
    before = [line for line in lines if line.number <= end]
    failed = [line.number for line in before if line.text.startswith(OVERRIDES)]
    began = [line.number for line in before if line.text.startswith(_CONNECTS)]
    begin = began[-1] if len(began) > 1 else 0
    if failed and failed[-1] > begin:  # that run ended there, even if another began after it
        begin = next((number for number in began if number > failed[-1]), end)
    return Life(begin, end)


def parted(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """Split off what Ray and the run's workers print after its end, or a server after it was asked to stop.

    A task runner with another number belongs to another run.
    """
    end = finished_at(lines)
    if end is None:
        return _until_stopped(lines)
    runners = {line.process for line in lines[: end + 1] if _RUNNER.match(line.process)}
    counts = list(lines[: end + 1])
    behind: list[Line] = []
    for line in lines[end + 1 :]:
        (behind if _is_of_the_run(line.process, runners) else counts).append(line)
    return counts, behind


def _is_of_the_run(process: str, runners: AbstractSet[str]) -> bool:
    """Return whether a process is one of Ray's workers or servers that are ended after the run."""
    if _RUNNER.match(process):
        return process in runners
    return "pid=" in process or process in {"raylet", "autoscaler", "gcs_server"}


def _until_stopped(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """Split off what the processes of a server print after it was asked to stop, if it was.

    A process with another number belongs to a server that was started later.
    """
    stop = next((at for at, line in enumerate(lines) if _STOPPED.search(line.text)), len(lines))
    stopped = {line.process for line in lines[: stop + 1] if _OF_SERVER.match(line.process)}
    counts = list(lines[:stop])
    behind: list[Line] = []
    for line in lines[stop:]:
        (behind if line.process in stopped else counts).append(line)
    return counts, behind
