"""BUILD110: the algorithm's functions refuse their settings, or a row does not fit a micro batch."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "algorithm": "looking up the algorithm",
    "micro batches": "splitting the first rows into micro batches",
    "micro batches of talks": "splitting the first talks into micro batches",
    "loss of talks": "calculating the loss of the first talk",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (
                broken(
                    "micro batches",
                    "AssertionError",
                    "max_token_len must be greater than the sequence length",
                ),
            ),
            "max_token_len must be greater",
        ),
    ]


@check(
    "BUILD110",
    cost="live",
    requires=("CFG108", "CFG119"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def algorithm_unknown(construction: Construction) -> Iterator[Finding]:
    """The algorithm's functions refuse their settings, or a row does not fit a micro batch.

    ## Why it matters
    Estimators, losses and penalties are looked up by name when the first update is due, after the first
    rollout. A micro batch of dynamic size must hold the longest row of prompt and response.

    ## How to fix
    Name a function that this verl has. For micro batches, set `ppo_max_token_len_per_gpu` to at least
    `max_prompt_length` plus `max_response_length`; for fine-tuning, `data.max_token_len_per_gpu` to at least
    `data.max_length`.
    """
    yield from findings(
        construction,
        _STAGES,
        "first update",
        "change the setting that the message names",
        {"micro batches": "first batch"},  # log probabilities come first
    )
