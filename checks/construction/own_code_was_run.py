"""BUILD120: code of the user's was run to build the job."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 4


@check(
    "BUILD120",
    severity="info",
    cost="live",
    examples=lambda: [
        Example("verl's own code alone", (SOUND,)),
        Example("a reward function", (Construction(own_code=("/home/me/reward.py",)),), "code of yours was run: /home/me/reward.py"),
    ],
)  # fmt: skip
def own_code_was_run(construction: Construction) -> Iterator[Finding]:
    """The user's own code ran while the job was built.

    ## Why it matters
    A reward function, a class for data or an agent loop is built and called as the job would, under a time limit, without network and
    with no file written outside a private folder. Whoever checks a script that others wrote should know.

    ## How to fix
    Nothing is wrong. `check` without `--deep` runs no code of the job.
    """
    if construction.own_code:
        yield Finding(
            f"code of yours was run: {listed(construction.own_code, _SHOWN)}",
            Evidence(found="the modules that were loaded and belong to no library"),
            location=Location(construction.own_code[0]),
            subject=Subject("file", construction.own_code[0]),
        )
