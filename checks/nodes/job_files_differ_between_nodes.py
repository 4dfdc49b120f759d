"""HOST131: a path that the job or the configuration names is not the same on all nodes."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.nodes._fleet import Words, differences
from verl_doctor.checks.nodes._fleet_examples import fleet_of
from verl_doctor.toolkit.collectors.ray.fleet import Fleet, Subject
from verl_doctor.toolkit.rule import Example, Finding, Severity, check


def _examples() -> list[Example]:
    return [
        Example("all alike", (fleet_of(1000),)),
        Example(
            "not mounted on one node",
            (fleet_of(8, ("file", "/models/qwen", {"there": 7, "missing": (1, "node5")})),),
            "node5 has no /models/qwen, the other 7 have /models/qwen",
        ),
        Example(
            "an interrupted download",
            (
                fleet_of(
                    8,
                    (
                        "content",
                        "/models/qwen",
                        {
                            "12 files, 15,231,233,024 bytes (list 3f9c01d2aa17)": 7,
                            "9 files, 11,002,310,656 bytes (list 77ab01d2aa17)": (1, "node5"),
                        },
                    ),
                ),
            ),
            "node5 has 9 files, 11,002,310,656 bytes",
        ),
    ]


@check("HOST131", phase="workers", severity="error", cost="cluster", examples=_examples)
def job_files_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """A path that the job or the configuration names differs between nodes.

    ## Why it matters

    Each node reads the model, the data and the configured `sites` from its own path. If it is missing, the
    workers of that node fail at the start; if it is an older or incomplete copy, they load different weights
    from the others, without any message.

    ## How to fix

    Mount the shared file system there, or copy the folder again: the comparison is by a digest of all names
    and sizes.
    """
    yield from differences(fleet.about("file", "content", "written"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    if subject.kind == "content":
        return f"{value} in {subject.name}"
    if value == "there":
        return subject.name
    return f"{subject.name} {value}" if value and value != "missing" else f"no {subject.name}"


def _severity(subject: Subject) -> Severity:
    return "info" if subject.kind == "written" else "error"


_WORDS = Words(
    phrase=_phrase,
    singular="path",
    several="paths",
    read_from="names and sizes in the folder on each node",
    remedy="copy it to these nodes again, or mount the file system that the others use",
    severity=_severity,
)
