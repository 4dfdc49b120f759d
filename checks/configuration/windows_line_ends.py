"""CFG107: the lines of a launch script end as in Windows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.launch_examples import GOOD, SCRIPT
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check


def _examples() -> list[Example]:
    return [
        Example("Unix line ends", (GOOD,)),
        Example("a script from Windows", (replace(GOOD, carriage_returns=(SCRIPT,)),), "carriage return"),
    ]


@check("CFG107", phase="composition", examples=_examples)
def windows_line_ends(launch: Launch) -> Iterator[Finding]:
    r"""A launch script has Windows line endings.

    ## Why it matters
    bash reads the carriage return as part of the last word, and a `\` before it no longer joins lines. The
    command ends at its first line (`$'\r': command not found`), and values end in an invisible character.

    ## How to fix
    `sed -i 's/\r$//' SCRIPT`. To have git keep it that way, add `*.sh text eol=lf` to `.gitattributes`.
    """
    for path in launch.carriage_returns:
        yield Finding(
            f"{path} has Windows line endings: bash reads each carriage return as part of a word",
            Evidence(found="\\r\\n", wanted="\\n"),
            location=Location(path),
            remedy=f"sed -i 's/\\r$//' {shlex.quote(path)}",
            subject=Subject("file", path),
            fix="unix-line-ends",
        )
