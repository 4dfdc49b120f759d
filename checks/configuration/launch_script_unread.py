"""CFG106: parts of the launch script could not be followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.launch_examples import GOOD
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted, listed

_MISSING = "/home/me/run.sh:3: env.sh is sourced, but does not exist"


def _examples() -> list[Example]:
    return [
        Example("the whole script was followed", (GOOD,)),
        Example(
            "a file that does not exist", (replace(GOOD, unread=(_MISSING,)),), "1 part of the launch script"
        ),
    ]


@check("CFG106", severity="info", examples=_examples)
def launch_script_unread(launch: Launch) -> Iterator[Finding]:
    """Parts of the launch script could not be followed.

    ## Why it matters
    Scripts are read without being run. What such a part sets or starts is not checked.

    ## How to fix
    Run `verl-doctor check` in the folder from which the job starts, so that the files that the script names
    are found. Pass values that come from other programs as arguments after the script.
    """
    if launch.unread:
        path, _, rest = launch.unread[0].partition(":")
        line = rest.partition(":")[0]
        yield Finding(
            f"{counted(len(launch.unread), 'part')} of the launch script could not be followed",
            Evidence(found=listed(launch.unread, 3)),
            location=Location(path, int(line) if line.isdigit() else None),
            remedy="",
            subject=Subject("file", path),
        )
