"""BUILD120: code of the user's was run to build the job."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 4


def _examples() -> list[Example]:
    return [
        Example("only verl's own code", (SOUND,)),
        Example(
            "a reward function",
            (Construction(own_code=("/home/me/reward.py",)),),
            "your own code was run: /home/me/reward.py",
        ),
    ]


@check("BUILD120", severity="info", cost="live", examples=_examples, since="0.2")
def own_code_was_run(construction: Construction) -> Iterator[Finding]:
    """The user's own code ran while the job was built.

    ## Why it matters
    A reward function, a data set class or an agent loop is built and called as in the job, with a time limit,
    without network, and without writing files outside a private folder. Keep this in mind before you check
    scripts that others wrote.

    ## How to fix
    Nothing is wrong. `check` without `--deep` runs no code of the job.
    """
    if construction.own_code:
        yield Finding(
            f"your own code was run: {listed(construction.own_code, _SHOWN)}",
            Evidence(found="loaded modules that belong to no library"),
            location=Location(construction.own_code[0]),
            subject=Subject("file", construction.own_code[0]),
        )
