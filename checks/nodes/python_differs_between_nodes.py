"""RAY146: nodes of the cluster have different versions of Python."""

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
            "another patch release",
            (fleet_of(16, ("Python", "Python", {"3.12.3": 15, "3.12.11": (1, "node9")})),),
            "node9 has Python 3.12.11, the other 15 have Python 3.12.3",
        ),
    ]


@check("RAY146", phase="ray", severity="error", cost="cluster", examples=_examples)
def python_differs_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Nodes of the cluster have different versions of Python.

    ## Why it matters

    Ray refuses a node or a driver whose Python is not the head's, down to the patch release, unless
    RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL=minor is set (ray/_private/utils.py, `check_version_info`).
    Functions travel between nodes as pickled bytecode, which another minor release cannot run.

    ## How to fix

    Create the environments of all nodes with the same interpreter, for instance from one image.
    """
    yield from differences(fleet.about("Python"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{subject.name} {value}"


_WORDS = Words(
    phrase=_phrase,
    singular="version",
    several="versions",
    read_from="the interpreter on each node",
    remedy="create the environment on these nodes with the same Python",
)
