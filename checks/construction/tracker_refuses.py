"""BUILD111: a tracker of the job is unknown, or its package is missing."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "trackers": "starting the trackers",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("trackers", "AssertionError", "wandbb is not supported"),),
            "wandbb is not supported",
        ),
    ]


@check(
    "BUILD111",
    cost="live",
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def tracker_refuses(construction: Construction) -> Iterator[Finding]:
    """A tracker of the job is unknown, or its package is missing.

    ## Why it matters
    verl starts the trackers in `trainer.logger` after everything else. Nothing was sent here: stubs replaced
    the packages.

    ## How to fix
    Install the tracker's package, or remove it from `trainer.logger`.
    """
    yield from findings(
        construction, _STAGES, "start", "install the tracker's package, or remove it from trainer.logger"
    )
