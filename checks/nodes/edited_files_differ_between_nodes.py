"""PKG121: a file of a package is edited on some nodes and not on others."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.nodes._fleet import Words, differences
from verl_doctor.checks.nodes._fleet_examples import fleet_of
from verl_doctor.toolkit.collectors.ray.fleet import Fleet, Subject
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> list[Example]:
    return [
        Example("all alike", (fleet_of(1000),)),
        Example(
            "a patch on four nodes only",
            (
                fleet_of(
                    64, ("edited file", "vllm: vllm/envs.py", {"": 60, "3f9c01d2aa17": (4, "node[1-4]")})
                ),
            ),
            (
                "node[1-4] have vllm: vllm/envs.py edited (3f9c01d2aa17), the other 60 have vllm: "
                "vllm/envs.py as in its wheel"
            ),
        ),
    ]


@check("PKG121", severity="warning", cost="cluster", examples=_examples)
def edited_files_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """A file of a package is edited on some nodes only.

    ## Why it matters

    The same code is meant to run on all nodes. If a patch was made on one node only, or an update was
    interrupted on another, workers fail or compute differently on these nodes only.

    ## How to fix

    Apply the patch on all nodes (`verl-doctor patches export` writes it to a file), or revert it where it
    should not be.
    """
    yield from differences(fleet.about("edited file"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    if value == "missing":
        return f"no {subject.name}"
    return f"{subject.name} edited ({value})" if value else f"{subject.name} as in its wheel"


_WORDS = Words(
    phrase=_phrase,
    singular="edited file",
    several="edited files",
    read_from="the packages' RECORD files on each node",
    remedy="apply the same patches on these nodes, or reinstall the package",
)
