"""The verdict on a job: its name in documents and on the screen, and its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from verl_doctor.toolkit.exit_code import ExitCode

Verdict = Literal["ok", "warnings", "failures", "could_not_check"]
PathState = Literal["will_fail", "no_fault_found", "not_checked"]

STATES: Final[Mapping[Verdict, PathState]] = {
    "failures": "will_fail",
    "could_not_check": "not_checked",
    "warnings": "no_fault_found",
    "ok": "no_fault_found",
}
"""The verdict for one path of a job."""

WORDS: Final[Mapping[Verdict, str]] = {
    verdict: state.replace("_", " ").upper() for verdict, state in STATES.items()
}
"""Its name on the screen: WILL FAIL, NOT CHECKED or NO FAULT FOUND, and nothing else."""

EXIT_CODES: Final[Mapping[Verdict, ExitCode]] = {
    "ok": ExitCode.OK,
    "warnings": ExitCode.OK,
    "failures": ExitCode.FAILED,
    "could_not_check": ExitCode.COULD_NOT_CHECK,
}
"""The exit code of a command."""
