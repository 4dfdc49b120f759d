"""HOST132: a folder of the job lies on another file system on some nodes."""

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
            "scratch was not mounted",
            (
                fleet_of(
                    8,
                    (
                        "mount",
                        "temporary files",
                        {
                            "/scratch on xfs, of this machine alone": 7,
                            "/scratch on overlay, of this machine alone": (1, "node5"),
                        },
                    ),
                ),
            ),
            "node5 has temporary files in /scratch on overlay",
        ),
    ]


@check("HOST132", severity="warning", cost="cluster", examples=_examples)
def mounts_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """A folder of the job is on a different file system on some nodes.

    ## Why it matters

    A missing mount seldom causes an error: the folder exists, but is small, slow, and on the system disk.
    Ray's sessions and spilled objects fill it on these nodes first.

    ## How to fix

    Mount it on these nodes, then restart Ray there.
    """
    yield from differences(fleet.about("mount"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{subject.name} in {value}" if value else f"no {subject.name}"


_WORDS = Words(
    phrase=_phrase,
    singular="folder",
    several="folders",
    read_from="/proc/self/mountinfo on each node",
    remedy="mount the file system that the other nodes use",
)
