"""What the nodes of a cluster say of themselves, counted: only that on which they do not all agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.system.node_names import expand, fold, shortened

UNSEEN = "GPUs that could not be asked"
"""The kind of a node on which NVML failed, though nothing says that there is no GPU."""


@dataclass(frozen=True)
class Said:
    """One answer to one question: what was said, "" for "there is none", by how many nodes, and which (`system.node_names`).

    Nodes that are like most are not named: `nodes` is "" for an answer that more than half give.
    """

    value: str
    count: int
    nodes: str

    @property
    def named(self) -> str:
        """The nodes for a sentence: cut when there are too many to be read."""
        return shortened(self.nodes, self.count)


def together(lists: Iterable[str]) -> Said:
    """Several lists of nodes as one, each node once."""
    nodes = {node for list_ in lists for node in expand(list_)}
    return Said("", len(nodes), fold(nodes))


@dataclass(frozen=True)
class Subject:
    """A question on which nodes differ, the most frequent answer first.

    `kind` is what it is about ("package", "variable"...), `name` which one. `among` says which nodes were compared: "" for
    all, otherwise the kind of node, for instance its GPUs.
    """

    kind: str
    name: str
    answers: tuple[Said, ...]
    among: str = ""

    @property
    def usual(self) -> Said | None:
        """What more than half of those that answered say, None where there is no such majority."""
        first = self.answers[0]
        return first if 2 * first.count > sum(answer.count for answer in self.answers) else None


@dataclass(frozen=True)
class NodeKind:
    """Nodes with the same kind of GPUs, or with none: its name as the driver says it, "" for none.

    `nodes` is "" for the kind that more than half have.
    """

    gpus: str
    count: int
    nodes: str


@dataclass(frozen=True)
class Fleet:
    """Many nodes. `kinds` are the groups that are compared among themselves in what concerns GPUs, the largest first.

    `odd` is how many of the nodes are unlike most of those that they are compared with, in anything.
    """

    nodes: int
    kinds: tuple[NodeKind, ...]
    differ: tuple[Subject, ...] = ()
    odd: int = 0

    def about(self, *kinds: str) -> tuple[Subject, ...]:
        """The subjects of these kinds on which nodes differ."""
        return tuple(subject for subject in self.differ if subject.kind in kinds)


@collector()
def fleet() -> Fleet | Absent:
    """Nodes are compared by the command that asks them."""
    return Absent("the nodes of no cluster were asked: --cluster asks them")
