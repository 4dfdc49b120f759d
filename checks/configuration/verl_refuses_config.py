"""CFG114: verl's own validation refuses the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {"validation": "verl's own validation"}
_MESSAGE = (
    "[actor_rollout_ref.ref] Please set at least one of 'actor_rollout_ref.ref.log_prob_micro_batch_size'"
)


def _examples() -> list[Example]:
    return [
        Example("verl accepts the configuration", (SOUND,)),
        Example(
            "verl refuses the configuration",
            (broken("validation", "ValueError", _MESSAGE),),
            "at least one of",
        ),
    ]


@check(
    "CFG114",
    phase="validation",
    cost="live",
    requires=("CFG101", "CFG102", "CFG103", "CFG108", "CFG115", "CFG121", "LOAD118"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
)
def verl_refuses_config(construction: Construction) -> Iterator[Finding]:
    """verl's own validation refuses the configuration.

    ## Why it matters
    The same code runs when the trainer starts, in some releases after Ray is up and the model is downloaded.
    The job stops there.

    ## How to fix
    Follow verl's message. This was verl's own code, run on the composed configuration with the
    environment's interpreter; nothing else of the job was started.
    """
    yield from findings(construction, _STAGES, "validation", "follow verl's message")
