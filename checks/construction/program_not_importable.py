"""BUILD101: the job's program cannot be imported, or its trainer cannot be made."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, Phase, check

_STAGES = {
    "import": "importing the program",
    "trainer": "making the trainer",
    "roles": "choosing the workers",
}


def _examples() -> list[Example]:
    return [
        Example("the stage succeeds", (SOUND,)),
        Example(
            "the stage fails",
            (broken("import", "AttributeError", "module 'datasets' has no attribute 'Dataset'"),),
            "module 'datasets' has no attribute",
        ),
    ]


@check(
    "BUILD101",
    cost="live",
    requires=(
        "CFG101",
        "CFG102",
        "CFG103",
        "CFG104",
        "CFG105",
        "CFG116",
        "API101",
        "PY112",
        "CFG119",
        "CFG126",
    ),
    unjudged=unjudged(_STAGES),
    applies=reached(_STAGES),
    examples=_examples,
    since="0.2",
)
def program_not_importable(construction: Construction) -> Iterator[Finding]:
    """The job's program cannot be imported, or its trainer cannot be created.

    ## Why it matters
    verl imports its trainer, torch and their libraries before anything else. An exception there ends the job
    at once, whatever the configuration. A folder next to the script with the name of a library is imported
    instead of the library.

    ## How to fix
    Follow the exception's message. If the finding names a file of your own, that file is what was loaded.
    """
    later: dict[str, Phase] = {"trainer": "workers", "roles": "workers"}
    yield from findings(construction, _STAGES, "import", "follow the exception's message", later)
