"""BUILD106: the first validation prompts cannot be made, or do not fit the engine."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "agent loops in validation": "the agent loop of a first validation row",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("agent loops in validation", "ValueError", "top_p must be in (0, 1]"),),
            "top_p must be in",
        ),
    ]


@check(
    "BUILD106",
    cost="live",
    requires=("LOAD117", "DATA104", "DATA105", "BUILD105"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def validation_not_generated(construction: Construction) -> Iterator[Finding]:
    """The first validation prompts cannot be built, or do not fit the engine.

    ## Why it matters
    Validation has its own data and sampling parameters (`rollout.val_kwargs`). The job gets there minutes
    after the start.

    ## How to fix
    Follow the exception's message. It was raised for a row of the validation data.
    """
    yield from findings(
        construction, _STAGES, "first validation", "correct the validation data, or rollout.val_kwargs"
    )
