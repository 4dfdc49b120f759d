"""BUILD103: the model's configuration, its tokenizer or its processor cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_STAGES = {
    "model": "loading the model's configuration and tokenizer",
    "critic's model": "loading the critic's configuration",
    "reward model": "loading the reward model's tokenizer",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("critic's model", "OSError", "Repo id must be in the form 'repo_name'"),),
            "Repo id must be in the form",
        ),
    ]


@check(
    "BUILD103",
    cost="live",
    requires=("LOAD101", "LOAD102", "LOAD118", "LOAD119", "CFG114"),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def model_not_loadable(construction: Construction) -> Iterator[Finding]:
    """The model's configuration, its tokenizer or its processor cannot be loaded.

    ## Why it matters
    The trainer and each worker load them before anything else. A critic has its own path,
    `critic.model.path`, whose default is a model from verl's examples.

    ## How to fix
    Name a folder with a complete model. If the finding is about the critic and the job needs one, set
    `critic.model.path`.
    """
    yield from findings(construction, _STAGES, "workers", "set the path to a folder with a complete model")
