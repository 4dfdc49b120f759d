"""The reports of a cluster's nodes, counted: only what differs between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.system.node_names import expand, fold, shortened

UNSEEN = "GPUs that could not be queried"
"""The kind of a node on which NVML failed, although it may have a GPU."""


@dataclass(frozen=True)
class ReportedValue:
    """One value of a subject: the value, "" for absent, on how many nodes, and which (`system.node_names`).

    Typical nodes are not named: `nodes` is "" for a value that more than half report.
    """

    value: str
    count: int
    nodes: str

    @property
    def named(self) -> str:
        """Return the nodes for a sentence, shortened if there are too many to read."""
        return shortened(self.nodes, self.count)


def together(lists: Iterable[str]) -> ReportedValue:
    """Merge several lists of nodes, each node once."""
    nodes = {node for list_ in lists for node in expand(list_)}
    return ReportedValue("", len(nodes), fold(nodes))


@dataclass(frozen=True)
class Subject:
    """A subject on which nodes differ, the most frequent value first.

    `kind` is what it is about ("package", "variable"...), `name` which one. `among` is which nodes were
    compared: "" for all, otherwise the kind of node, for instance its GPUs.
    """

    kind: str
    name: str
    answers: tuple[ReportedValue, ...]
    among: str = ""

    @property
    def usual(self) -> ReportedValue | None:
        """Return the value that more than half of the reporting nodes have, None without such a majority."""
        first = self.answers[0]
        return first if 2 * first.count > sum(answer.count for answer in self.answers) else None


@dataclass(frozen=True)
class NodeKind:
    """Nodes with the same kind of GPUs, or with none: its name as the driver reports it, "" for none.

    `nodes` is "" for the kind of more than half of the nodes.
    """

    gpus: str
    count: int
    nodes: str


@dataclass(frozen=True)
class Fleet:
    """Many nodes. `kinds` are the groups within which GPU matters are compared, the largest first.

    `odd` is how many nodes differ in anything from most of those that they are compared with.
    """

    nodes: int
    kinds: tuple[NodeKind, ...]
    differ: tuple[Subject, ...] = ()
    odd: int = 0

    def about(self, *kinds: str) -> tuple[Subject, ...]:
        """Return the subjects of these kinds on which nodes differ."""
        return tuple(subject for subject in self.differ if subject.kind in kinds)


@collector()
def fleet() -> Fleet | Absent:
    """Nodes are compared by the command that queries them."""
    return Absent("no cluster's nodes were queried: --cluster queries them")
