"""BUILD104: the data sets or the first batch cannot be made."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, Phase, check

_STAGES = {
    "data sets": "making the data sets",
    "first batch": "making the first batch",
    "first validation batch": "making the first validation batch",
}
_PHASES: dict[str, Phase] = {"first batch": "first batch", "first validation batch": "first validation"}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example("the stage fails", (broken("first batch", "KeyError", "'prompt'"),), "'prompt'"),
    ]


@check(
    "BUILD104",
    cost="live",
    requires=("DATA101", "DATA102", "DATA103", "DATA104", "DATA105", "DATA107", "DATA110"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def data_not_loadable(construction: Construction) -> Iterator[Finding]:
    """The data sets or the first batch cannot be created.

    ## Why it matters
    verl reads and filters the data and collates rows after the model is loaded. Only the rows of one batch
    were read here.

    ## How to fix
    Correct the file, the column or the class that the finding names.
    """
    remedy = "correct the data, or the setting that controls how they are read"
    yield from findings(construction, _STAGES, "workers", remedy, _PHASES)
