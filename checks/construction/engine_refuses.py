"""BUILD109: the engine refuses its configuration."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "rollout classes": "loading the rollout",
    "engine": "configuring the engine",
    "engine's adapter": "giving the engine an adapter",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("engine", "ValidationError", "max_num_seqs must be at least 1"),),
            "max_num_seqs must be at least 1",
        ),
    ]


@check(
    "BUILD109",
    cost="live",
    requires=(
        "CFG113",
        "CFG119",
        "CFG120",
        "CFG123",
        "LOAD103",
        "LOAD108",
        "ATT101",
        "ATT102",
        "ATT103",
        "ATT104",
        "ATT105",
        "ATT106",
        "VLLM101",
        "VLLM102",
        "VLLM103",
        "VLLM104",
        "VLLM105",
        "VLLM106",
        "VLLM108",
        "VLLM112",
    ),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def engine_refuses(construction: Construction) -> Iterator[Finding]:
    """The engine refuses its configuration.

    ## Why it matters
    verl turns the rollout's section into engine arguments, and the engine checks them when it starts, after
    the trainer has loaded the model. Here verl's own server built the engine's configuration and started
    nothing.

    ## How to fix
    Change the setting that the finding names.
    """
    yield from findings(construction, _STAGES, "engine", "change the setting that the engine refuses")
