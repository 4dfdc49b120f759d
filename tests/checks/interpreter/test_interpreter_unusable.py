"""PY100: the next step fits the reason."""

from __future__ import annotations

import pytest

from verl_doctor.checks.interpreter.interpreter_unusable import interpreter_unusable
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.facts import Unknown, UnknownKind
from verl_doctor.toolkit.testing import run_check


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("", "run it by hand with -c pass"),
        ("sound when isolated", "run it by hand with -v -c pass"),
    ],
)
def test_next_step_fits_the_reason(kind: UnknownKind, step: str) -> None:
    (finding,) = run_check(interpreter_unusable, (Interpreter, Unknown("why", kind=kind))).findings
    assert finding.remedy.startswith(step)


@pytest.mark.parametrize("kind", ["no more processes", "no temporary folder"])
def test_limitation_of_the_doctor_is_not_blamed_on_the_interpreter(kind: UnknownKind) -> None:
    result = run_check(interpreter_unusable, (Interpreter, Unknown("why", kind=kind)))
    assert (result.status, result.reason, result.findings) == ("error", "why", ())
