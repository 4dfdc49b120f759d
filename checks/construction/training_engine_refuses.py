"""BUILD108: the trainer's workers cannot build the model, its adapters or its optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "weights": "building the model",
    "training engine": "building the workers of the trainer",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("training engine", "ValueError", "Target modules {'nope'} not found in the base model"),),
            "not found in the base model",
        ),
    ]


@check(
    "BUILD108",
    cost="live",
    requires=(
        "ATT109",
        "ATT110",
        "LOAD101",
        "LOAD104",
        "LOAD105",
        "LOAD122",
        "LOAD123",
        "CFG108",
        "CFG120",
        "CFG121",
    ),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def training_engine_refuses(construction: Construction) -> Iterator[Finding]:
    """The trainer's workers cannot build the model, its adapters or its optimizer.

    ## Why it matters
    The workers build the model with the requested attention, add adapters and an optimizer, and shard it over
    the GPUs. Here the same code ran on tensors without data, and their shapes were compared with those in the
    weight files.

    ## How to fix
    Change the setting that the finding names, or correct the model's `config.json`.
    """
    yield from findings(
        construction, _STAGES, "workers", "change the setting, or correct the model's config.json"
    )
