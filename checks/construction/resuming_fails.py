"""BUILD112: the checkpoint to resume from cannot be found."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "resuming": "finding the checkpoint to resume from",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("resuming", "AssertionError", "resume ckpt must specify the global_steps"),),
            "must specify the global_steps",
        ),
    ]


@check(
    "BUILD112",
    cost="live",
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def resuming_fails(construction: Construction) -> Iterator[Finding]:
    """The checkpoint to resume from cannot be found.

    ## Why it matters
    verl looks for the checkpoint after the trainer and the engine have started, minutes into the job.

    ## How to fix
    Set `trainer.resume_from_path` to an existing folder `global_step_N`, or set
    `trainer.resume_mode=disable`.
    """
    yield from findings(
        construction, _STAGES, "start", "correct trainer.resume_from_path, or set trainer.resume_mode=disable"
    )
