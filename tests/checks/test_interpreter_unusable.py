"""PY100: the next step fits the reason."""

from __future__ import annotations

import pytest

from verl_doctor.checks.interpreter_unusable import interpreter_unusable
from verl_doctor.toolkit.fact_interpreter import SOUND_WHEN_ISOLATED, Interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("python did not answer within 10 s", "Run it by hand with -c pass"),
        (f"python failed: x; {SOUND_WHEN_ISOLATED}", "Run it by hand with -v -c pass"),
        ("python cannot be started: Resource temporarily unavailable", "Raise the limit on processes"),
        ("python cannot be started: Cannot allocate memory", "Raise the limit on processes"),
        ("python cannot be started: no folder for temporary files can be written", "Set TMPDIR"),
    ],
)
def test_the_next_step_fits_the_reason(reason: str, step: str) -> None:
    (finding,) = run_check(interpreter_unusable, (Interpreter, Unknown(reason))).findings
    assert finding.remedy.startswith(step)
