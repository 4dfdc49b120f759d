"""A comparison in JSON types, and the phrases that text and Markdown share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.comparison.comparison import WEIGHTS, Difference, Weight
from verl_doctor.toolkit.comparison.judge import Comparison, Verdict
from verl_doctor.toolkit.comparison.subjects import LEAD
from verl_doctor.toolkit.json_document import Count
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.system.node_names import expand, shortened
from verl_doctor.toolkit.text import counted

WORDS: Mapping[Verdict, str] = {
    "equal": "EQUAL",
    "matters": "DIFFERS",
    "breaks": "BREAKS",
    "could_not_compare": "COULD NOT COMPARE",
}
_MOST = 12
"""How many differences of one kind are shown unless all are requested."""


class SideDocument(TypedDict):
    """One side of the comparison."""

    file: Annotated[str, "empty for what was examined just now"]
    machine: str
    taken: Annotated[str, "UTC in ISO 8601; empty for a facts file"]
    verl_doctor: str
    nodes: Count
    missing: Annotated[Count, "nodes that did not respond"]


class DifferenceDocument(TypedDict):
    """One difference."""

    kind: str
    subject: str
    old: Annotated[str, "empty if it did not exist"]
    new: Annotated[str, "empty if it does not exist"]
    nodes: Annotated[str, "the new nodes with this value, as ranges; empty for a single machine"]
    weight: Weight
    why: str
    next: str
    codes: Annotated[list[str], "rules that fail on the new side only"]
    folded: Annotated[list[str], "the settings that this difference stands for"]


class GoneDocument(TypedDict):
    """A finding of the old side only."""

    code: str
    message: str


class SummaryDocument(TypedDict):
    """The number of differences of each weight."""

    breaks: Count
    matters: Count
    noise: Count


class CompareDocument(TypedDict):
    """What differs between two machines or moments."""

    schema_version: Literal[1]
    verdict: Verdict
    old: SideDocument
    new: SideDocument
    differences: Annotated[list[DifferenceDocument], "the most important first"]
    gone: Annotated[list[GoneDocument], "findings of the old side that the new side does not have"]
    not_compared: Annotated[list[str], "what only one side contains"]
    lost: Annotated[list[str], "what could not be read"]
    summary: SummaryDocument


def document(of: Comparison) -> CompareDocument:
    """Return the comparison in JSON types, in a stable order."""
    return {
        "schema_version": 1,
        "verdict": of.verdict,
        "old": _side(of.old),
        "new": _side(of.new),
        "differences": [_difference(difference) for difference in of.differences],
        "gone": [{"code": code, "message": message} for code, message in of.gone],
        "not_compared": list(of.not_compared),
        "lost": list(of.lost),
        "summary": {
            "breaks": len(of.of("breaks")),
            "matters": len(of.of("matters")),
            "noise": len(of.of("noise")),
        },
    }


def _difference(difference: Difference) -> DifferenceDocument:
    return {
        "kind": difference.kind,
        "subject": difference.subject,
        "old": difference.old,
        "new": difference.new,
        "nodes": difference.nodes,
        "weight": difference.weight,
        "why": difference.why,
        "next": difference.next,
        "codes": list(difference.codes),
        "folded": list(difference.folded),
    }


def _side(snapshot: Snapshot) -> SideDocument:
    return {
        "file": snapshot.path,
        "machine": snapshot.machine,
        "taken": snapshot.taken,
        "verl_doctor": snapshot.version,
        "nodes": len(snapshot.nodes),
        "missing": len(snapshot.nodes.missing),
    }


def headline(of: Comparison) -> str:
    """Return how many differences there are of each weight."""
    breaks, matters, noise = (len(of.of(weight)) for weight in WEIGHTS)
    parts = (
        [f"{counted(breaks, 'difference')} {'stops' if breaks == 1 else 'stop'} the job"] if breaks else []
    )
    if matters:
        parts.append(
            f"{matters:,} more may change" if breaks else f"{counted(matters, 'difference')} may change"
        )
        parts[-1] += " what it does" if breaks else " what the job does"
    parts += ["no difference matters"] if not parts and not of.lost else []
    parts += list(of.lost)
    return "; ".join(parts) + (f"; {noise:,} {'has' if noise == 1 else 'have'} no effect" if noise else "")


def side(snapshot: Snapshot, otherwise: str) -> str:
    """Describe the origin of a snapshot in one line."""
    queried_from = f" queried from {snapshot.machine}" if snapshot.machine else ""
    nodes = f"{counted(len(snapshot.nodes), 'node')}{queried_from}" if snapshot.nodes else snapshot.machine
    parts = (nodes, snapshot.taken.replace("T", " ").replace("Z", " UTC"), snapshot.path)
    return ", ".join(filter(None, parts)) or otherwise


@dataclass(frozen=True)
class Group:
    """Differences of one kind that matter for the same reason; `left` are not shown.

    `do` repairs all of them at once.
    """

    kind: str
    why: str
    shown: tuple[Difference, ...]
    left: tuple[Difference, ...] = ()
    do: str = ""


def groups(found: Iterable[Difference], *, every: bool) -> Iterator[Group]:
    """Group differences that share a kind, a reason and a remedy."""
    for (kind, why), members in groupby(found, key=lambda difference: (difference.kind, difference.why)):
        several = tuple(members)
        most = len(several) if every else _shown_of(several)
        yield Group(kind, why, several[:most], several[most:], _together(several[:most]))


def with_packages_together(breaks: Iterable[Difference]) -> list[tuple[Difference, ...]]:
    """Group what breaks the job: missing packages with one remedy are shown together, all else alone."""
    found: dict[object, tuple[Difference, ...]] = {}
    for number, difference in enumerate(breaks):
        together = difference.kind == "package" and not difference.new and difference.codes
        key = (difference.codes, difference.next, difference.nodes) if together else number
        found[key] = (*found.get(key, ()), difference)
    return list(found.values())


def by_kind(found: Iterable[Difference]) -> Mapping[str, list[Difference]]:
    """Group differences by the kind of subject, in the order in which each kind first occurs."""
    kinds: dict[str, list[Difference]] = {}
    for difference in found:
        kinds.setdefault(difference.kind, []).append(difference)
    return kinds


def _shown_of(several: tuple[Difference, ...]) -> int:
    """Return all packages of the stack, and a few others; a single remaining one is shown too."""
    lead = sum(difference.kind == "package" and difference.subject in LEAD for difference in several)
    most = max(lead, _MOST)
    return len(several) if len(several) <= most + 1 else most


def _together(several: tuple[Difference, ...]) -> str:
    """Combine commands: those with one step anyway, and packages, as pip looks for compatible releases.

    A command with a comment, such as one for a separate tree, stands alone.
    """
    steps = [difference.next for difference in several]
    if len(several) > 1 and len(set(steps)) == 1:
        return steps[0]
    before, install, _ = steps[0].partition("pip install ")
    alike = all(step.startswith(before + install) and "  # " not in step for step in steps)
    if len(several) < 2 or not install or not alike:
        return ""
    return before + install + " ".join(step.removeprefix(before + install) for step in steps)


def values(difference: Difference) -> tuple[str, str]:
    """Return the old and the new value."""
    nothing = "not set" if difference.kind in {"variable", "configuration"} else "none"
    return difference.old or nothing, difference.new or nothing


def where(difference: Difference, of: Comparison) -> str:
    """Return the nodes; "" on a single machine."""
    if not difference.nodes:
        return ""
    count = len(expand(difference.nodes))
    return (
        f"on all {counted(count, 'node')}"
        if count == len(of.new.nodes) > 1
        else f"on {shortened(difference.nodes, count)}"
    )
