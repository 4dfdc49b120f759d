"""Exceptions as printed by Python and Ray, in chains of any length."""

from __future__ import annotations

import dataclasses

import pytest
from support.logs.builder import traceback

from verl_doctor.toolkit.logs import python_errors
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.lines import Line, log_lines
from verl_doctor.toolkit.logs.python_errors import raised_in

HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def joined(links: int) -> str:
    """A log of so many exceptions, each raised while the one before it was handled."""
    return HANDLING.join(traceback(f"JudgeError: attempt {at}") for at in range(links))


def nested(depth: int) -> str:
    """A log in which each process repeats the previous error in its message."""
    remote = "".join(
        f'ray.exceptions.RayTaskError(KeyError): ray::f() (pid={at})\n  File "/src/f.py", line 1, in f\n'
        for at in range(depth)
    )
    return f'Traceback (most recent call last):\n  File "/src/f.py", line 1, in f\n{remote}KeyError: 1\n'


@pytest.mark.parametrize("links", [1, 3, 1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_chain_is_read_in_linear_time(links: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(one: python_errors.Raised, **changes: object) -> python_errors.Raised:
        made.append(one)
        return dataclasses.replace(one, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(python_errors, "replace", counted)
    rows = joined(links).split("\n")
    (last,) = raised_in([Line(at, "", "", "", text, text) for at, text in enumerate(rows, 1)])
    chain = list(last.chain)
    assert [error.message for error in chain] == [f"attempt {at}" for at in reversed(range(links))]
    assert last.first is chain[-1]
    assert len(made) < links


@pytest.mark.parametrize("depth", [1, 40, 2_000])
def test_nested_errors_are_all_read(depth: int) -> None:
    found = raised_in(list(log_lines(nested(depth))))
    assert sum(len(list(error.chain)) for error in found) == depth + 1
    assert found[-1].first.message == "1"


@pytest.mark.slow
def test_thousand_chained_exceptions_are_judged() -> None:
    error = read(list(log_lines(joined(1_000))), "run.log").error
    assert error is not None
    assert error.words == "JudgeError: attempt 0"
