"""BUILD107: the reward cannot be made, or fails on the first rows."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, Phase, check

_STAGES = {
    "reward manager": "making the reward",
    "reward": "computing the reward of a first row",
    "validation reward": "computing the reward and the metrics of the first validation",
}
_PHASES: dict[str, Phase] = {"validation reward": "first validation"}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example("the stage fails", (broken("reward", "KeyError", "'answer'"),), "'answer'"),
    ]


@check(
    "BUILD107",
    cost="live",
    requires=("CFG122", "DATA106", "DATA112"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def reward_fails(construction: Construction) -> Iterator[Finding]:
    """The reward cannot be created, or fails on the first rows.

    ## Why it matters
    verl loads the reward function in separate workers and calls it for every response. An exception there
    ends the step; verl 0.9 hides it behind `no materializable trajectories`. Here the function was called for
    the first rows with a placeholder response.

    ## How to fix
    Correct the function, or the setting that names it. It must accept any response: a model under training
    may generate anything.
    """
    yield from findings(
        construction,
        _STAGES,
        "first batch",
        "correct the reward function: it must accept any response",
        _PHASES,
    )
