"""The command that mends the line ends of a script names it as a shell reads it."""

from __future__ import annotations

import shlex
from dataclasses import replace

from verl_doctor.checks.configuration.windows_line_ends import windows_line_ends
from verl_doctor.checks.shared.launch_examples import GOOD


def test_path_with_spaces_is_quoted() -> None:
    (finding,) = windows_line_ends.judge(replace(GOOD, carriage_returns=("my jobs/run $(id).sh",)))
    assert shlex.split(finding.remedy) == ["sed", "-i", r"s/\r$//", "my jobs/run $(id).sh"]
