"""Compares nodes by counting their values."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from verl_doctor.toolkit.cluster.fleet_facts import NodeFacts, Recent
from verl_doctor.toolkit.cluster.fleet_subjects import SUBJECTS, Nearly, SubjectReader, gpus_of
from verl_doctor.toolkit.collectors.ray.fleet import Fleet, NodeKind, ReportedValue, Subject
from verl_doctor.toolkit.facts import Need, Unknown, arguments_from, needs_of
from verl_doctor.toolkit.system.node_names import fold

_Values = tuple[tuple[tuple[str, str], str], ...]
"""One node's values in one comparison: kind and name of the subject, and the value."""


@dataclass
class _Comparing:
    """One comparison: how values are read from a node's facts, and which nodes have which value."""

    subject: SubjectReader
    needs: tuple[Need, ...]
    known: Recent[tuple[int, ...], tuple[_Values | None]] = field(default_factory=Recent)
    nodes_by_values: dict[_Values, array[int]] = field(default_factory=dict)

    def add(self, node: int, facts: NodeFacts) -> None:
        """Read one node.

        A node with unavailable facts has no values, which does not count as a difference.
        """
        key = tuple(facts.numbers.get(need.fact, 0) for need in self.needs)
        (values,) = self.known.get(key) or self.known.put(key, (self._values(facts),))
        if values is not None:
            self.nodes_by_values.setdefault(values, array("I")).append(node)

    def _values(self, facts: NodeFacts) -> _Values | None:
        arguments = arguments_from(self.needs, facts.get)
        return (
            None if isinstance(arguments, Unknown) else tuple(sorted(self.subject.read(**arguments).items()))
        )

    def differing(self, members: Iterable[int]) -> Iterator[tuple[tuple[str, str], dict[str, list[int]]]]:
        """Yield the subjects in which some of these nodes differ from others, with the nodes by value."""
        among = set(members)
        groups = [
            (dict(values), own)
            for values, nodes in self.nodes_by_values.items()
            if (own := [node for node in nodes if node in among])
        ]
        for key in dict.fromkeys(key for values, _ in groups for key in values) if len(groups) > 1 else ():
            by_value: dict[str, list[int]] = {}
            for values, nodes in groups:
                if key in values or self.subject.lacking_counts:
                    by_value.setdefault(values.get(key, ""), []).extend(nodes)
            if len(by_value) > 1 and self.subject.nearly is not None:
                by_value = _merged(by_value, self.subject.nearly)
            if len(by_value) > 1 and not (self.subject.may_name and _names_nodes(by_value)):
                yield key, by_value


class Comparison:
    """The nodes' values of everything that should be equal."""

    def __init__(self) -> None:
        self._comparing = [_Comparing(subject, needs_of(subject.read)) for subject in SUBJECTS]
        self._kinds: dict[str, array[int]] = {}

    def add(self, node: int, facts: NodeFacts) -> None:
        """Count one node's values."""
        self._kinds.setdefault(gpus_of(facts), array("I")).append(node)
        for comparing in self._comparing:
            comparing.add(node, facts)

    def fleet(self, names: Sequence[str]) -> Fleet:
        """Return the values that differ between nodes."""
        folds = _Folds(names)
        kinds = sorted(self._kinds.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        differ: list[Subject] = []
        odd: set[int] = set()
        for comparing in self._comparing:
            apart = comparing.subject.among_a_kind and len(kinds) > 1
            groups = kinds if apart else [("", range(len(names)))]
            for among, members in groups:
                for (kind, name), by_value in comparing.differing(members):
                    subject = Subject(kind, name, folds.counted_values(by_value), among)
                    differ.append(subject)
                    if not comparing.subject.weak:
                        odd.update(_unlike(subject.usual, by_value))
        return Fleet(
            nodes=len(names),
            kinds=tuple(NodeKind(gpus, len(nodes), folds.of(nodes, len(names))) for gpus, nodes in kinds),
            differ=tuple(sorted(differ, key=lambda subject: (subject.kind, subject.name, subject.among))),
            odd=len(odd),
        )


def _merged(by_value: Mapping[str, list[int]], nearly: Nearly) -> dict[str, list[int]]:
    """Return the same with nearly equal numbers merged."""
    shown = nearly.together(value for value in by_value if value)
    together: dict[str, list[int]] = {}
    for value, nodes in by_value.items():
        together.setdefault(shown.get(value, ""), []).extend(nodes)
    return together


def _names_nodes(by_value: Mapping[str, Sequence[int]]) -> bool:
    """Return whether the values identify nodes, and are not meant to be equal."""
    return len(by_value) > max(2, sum(map(len, by_value.values())) / 2)


def _unlike(usual: ReportedValue | None, by_value: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Yield the nodes outside the majority; all if there is none."""
    for value, nodes in by_value.items():
        if usual is None or value != usual.value:
            yield from nodes


class _Folds:
    """Folds each list of nodes once, because most subjects differ on the same nodes.

    Most nodes are not named.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._known: dict[tuple[int, ...], str] = {}

    def of(self, nodes: Sequence[int], among: int) -> str:
        if 2 * len(nodes) > among:
            return ""
        key = tuple(sorted(nodes))
        if key not in self._known:
            self._known[key] = fold(self._names[node] for node in key)
        return self._known[key]

    def counted_values(self, by_value: Mapping[str, Sequence[int]]) -> tuple[ReportedValue, ...]:
        """Return the values, the most frequent first."""
        ordered = sorted(by_value.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        every = sum(len(nodes) for nodes in by_value.values())
        return tuple(ReportedValue(value, len(nodes), self.of(nodes, every)) for value, nodes in ordered)
