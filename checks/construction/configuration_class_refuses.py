"""BUILD102: a class of verl's configuration refuses its values."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "composition": "composing the configuration",
    "resolution": "resolving the configuration",
    "configuration classes": "creating verl's configuration classes",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("configuration classes", "ValueError", "Rollout mode 'sync' has been removed"),),
            "Rollout mode 'sync' has been removed",
        ),
    ]


@check(
    "BUILD102",
    cost="live",
    requires=("CFG101", "CFG102", "CFG103", "CFG108", "CFG109", "CFG114", "CFG115", "CFG119"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def configuration_class_refuses(construction: Construction) -> Iterator[Finding]:
    """A class of verl's configuration refuses its values.

    ## Why it matters
    Sections of the configuration become objects whose classes check them, in the driver or in a worker: some
    before Ray is up, some a minute into the job.

    ## How to fix
    Change the setting that the finding names.
    """
    yield from findings(construction, _STAGES, "workers", "change the setting that verl's message names")
