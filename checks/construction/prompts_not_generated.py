"""BUILD105: the first prompts cannot be made, or do not fit the engine."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "agent loops": "the agent loop of a first row",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("agent loops", "ValueError", "Prompt length (40) leaves no room to generate"),),
            "leaves no room to generate",
        ),
    ]


@check(
    "BUILD105",
    cost="live",
    requires=("CFG120", "LOAD117", "DATA104", "DATA105"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def prompts_not_generated(construction: Construction) -> Iterator[Finding]:
    """The first prompts cannot be built, or do not fit the engine.

    ## Why it matters
    An agent loop turns each row into a prompt: it loads the tools, applies the chat template, and calls the
    engine, which refuses prompts that leave no room to generate. verl 0.9 hides exceptions there behind `no
    materializable trajectories`.

    ## How to fix
    Follow the exception's message. It was raised for a row of your data, with placeholder responses instead
    of the engine's.
    """
    yield from findings(
        construction, _STAGES, "first batch", "follow the exception's message: it concerns a row of your data"
    )
