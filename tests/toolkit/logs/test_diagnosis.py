"""Which of several exceptions is taken, and that no more of them are judged than it needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.logs.builder import traceback

from verl_doctor.toolkit.logs import diagnosis
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.first_cause import Cause
from verl_doctor.toolkit.logs.lines import Line, log_lines
from verl_doctor.toolkit.logs.python_errors import Raised

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
FILES = "OSError: [Errno 24] Too many open files"
UNKNOWN = "JudgeError: no"
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of each exception that is judged, in the order in which that happens."""
    words: list[str] = []
    cause_of = diagnosis.cause_of

    def counted(one: Raised, lines: Sequence[Line]) -> Cause:
        words.append(one.words)
        return cause_of(one, lines)

    monkeypatch.setattr(diagnosis, "cause_of", counted)
    return words


def first_cause(log: str) -> str:
    """What is named, or else the words of the error."""
    reading = read(list(log_lines(log)), "run.log")
    if reading.causes:
        return reading.causes[0].words
    return reading.error.words if reading.error is not None else ""


@pytest.mark.parametrize(
    ("errors", "taken", "looked_at"),
    [
        ([UNKNOWN, MEMORY, *[UNKNOWN] * 3], MEMORY.partition(".")[2], 4),
        ([MEMORY, *[UNKNOWN] * 200, FILES], FILES, 1),
        ([UNKNOWN, UNKNOWN], UNKNOWN, 2),
    ],
)
def test_errors_without_tracebacks_are_judged_from_the_last(
    errors: list[str], taken: str, looked_at: int, judged: list[str]
) -> None:
    assert first_cause("".join(f"{one}\n\n" for one in errors)) == taken
    assert len(judged) == looked_at


@pytest.mark.parametrize(
    ("errors", "taken", "looked_at"),
    [
        ((FILES, MEMORY), FILES, 1),
        ((UNKNOWN, FILES, MEMORY), FILES, 2),
        ((UNKNOWN, DIED, FILES), FILES, 3),
        ((UNKNOWN, DIED), UNKNOWN, 2),
    ],
)
def test_of_a_chain_the_innermost_that_is_known_is_taken_and_none_behind_it_is_judged(
    errors: Sequence[str], taken: str, looked_at: int, judged: list[str]
) -> None:
    joint = "\nThe above exception was the direct cause of the following exception:\n\n"
    assert first_cause(joint.join(traceback(one) for one in errors)) == taken
    assert len(judged) == looked_at + 1  # and once the error that ended the run
