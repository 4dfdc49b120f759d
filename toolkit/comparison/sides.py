"""One side of a comparison: a machine, or the nodes of a cluster, with their values of each subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from verl_doctor.toolkit.cluster.fleet_facts import FactStore, NodeFacts
from verl_doctor.toolkit.cluster.fleet_subjects import Values, gpus_of
from verl_doctor.toolkit.comparison.subjects import Reader
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Absent, Collector, Need, Unknown, arguments_from, needs_of
from verl_doctor.toolkit.snapshot.snapshot import Snapshot

HERE = ""
"""The machine's own name among the nodes, if it alone was examined or it alone has the facts."""


class Side:
    """A snapshot with its nodes. A node's facts are restored on first use."""

    def __init__(self, snapshot: Snapshot, collectors: Iterable[Collector]) -> None:
        self.snapshot = snapshot
        self._collectors = tuple(collectors)

    @cached_property
    def nodes(self) -> Mapping[str, NodeFacts]:
        """The nodes that responded, by name; none for a single machine."""
        store = FactStore(self._collectors, {})
        return {
            answer.node: store.facts_of(answer)
            for answer in self.snapshot.nodes.responses()
            if not answer.missing
        }

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """The GPUs of each node, by its name; `HERE` is the machine."""
        return {HERE: gpus_of(self.snapshot), **{name: gpus_of(facts) for name, facts in self.nodes.items()}}

    def facts(self, name: str) -> Facts:
        """Return the facts of a node, or of the machine."""
        return self.nodes.get(name, self.snapshot)

    def values(self, reader: Reader) -> dict[str, Values | Unknown]:
        """Return what each node reports, by its name.

        These are the nodes if they have such facts, else the machine, which has the job's.
        """
        needs = needs_of(reader.read)
        answering = {name: facts for name, facts in self.nodes.items() if _has_facts(needs, facts)}
        known: dict[tuple[int, ...], Values | Unknown] = {}
        found: dict[str, Values | Unknown] = {}
        for name, facts in answering.items():
            key = tuple(facts.numbers.get(need.fact, 0) for need in needs)
            if key not in known:
                known[key] = _values(reader, needs, facts)
            found[name] = known[key]
        return found or {HERE: _values(reader, needs, self.snapshot)}


def _has_facts(needs: Iterable[Need], facts: NodeFacts) -> bool:
    return all(need.fact in facts.numbers for need in needs if not need.tolerant)


def _values(reader: Reader, needs: tuple[Need, ...], facts: Facts) -> Values | Unknown:
    """Return what is reported; that something does not exist is also reported, unless it was not examined."""
    arguments: Mapping[str, Any] | Unknown = arguments_from(needs, facts.get)
    if isinstance(arguments, Absent) and not reader.requires:
        return {}
    return arguments if isinstance(arguments, Unknown) else reader.read(**arguments)


class Usual:
    """What the nodes of a side report about one reader's subjects.

    It determines which of these values a node of the other side is compared with.
    """

    def __init__(self, side: Side, values: Mapping[str, Values | Unknown]) -> None:
        self._side = side
        self._values = values
        self._known: dict[str, Values | Unknown] = {}

    def for_node(self, name: str, kind: str) -> Values | Unknown:
        """Return that node's values, else those of most nodes with such GPUs, else those of most nodes."""
        if name in self._values:
            return self._values[name]
        if kind not in self._known:
            alike = [node for node in self._values if self._side.kinds.get(node) == kind]
            self._known[kind] = _most_frequent([self._values[node] for node in alike or self._values])
        return self._known[kind]


def _most_frequent(values: Iterable[Values | Unknown]) -> Values | Unknown:
    """Return the most frequent value of each subject. Unknown values stay unknown."""
    every = list(values)
    known = [node_values for node_values in every if not isinstance(node_values, Unknown)]
    if len(known) < 2:
        return (known or every)[0]
    counts: dict[tuple[str, str], Counter[str]] = {}
    for node_values in known:
        for key, value in node_values.items():
            counts.setdefault(key, Counter())[value] += 1
    return {
        key: counts.most_common(1)[0][0] for key, counts in counts.items() if 2 * counts.total() > len(known)
    }
