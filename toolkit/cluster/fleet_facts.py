"""The facts of many nodes, most of them equal: each distinct fact is decoded and restored once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import count
from typing import Any, Generic, TypeVar, cast

from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.facts import Broken, Collector, F, Unknown
from verl_doctor.toolkit.target import UsageError

K = TypeVar("K")
V = TypeVar("V")

_KEPT = 64
"""How many distinct values of a fact, or results of a rule, are kept.

Values that nodes share recur within 64 others. Values that differ on each node never recur, and must not be
kept.
"""


class Recent(Generic[K, V]):
    """The most recently used entries."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._entries: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the entry, which becomes the youngest."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry
        return entry

    def put(self, key: K, entry: V) -> V:
        """Add an entry; the oldest is dropped."""
        if len(self._entries) >= self._most:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = entry
        return entry


class Shared:
    """One distinct value of a fact. Equal texts have equal numbers while they are kept."""

    def __init__(self, collector: Collector, text: str, number: int) -> None:
        self._collector = collector
        self._text = text
        self.number = number

    @cached_property
    def value(self) -> Any:
        """The fact, or the `Unknown` that the node reported."""
        try:
            return factsfile.restore("", self._collector, json.loads(self._text))
        except (UsageError, ValueError, RecursionError) as error:
            return Broken(f"{self._collector.name} came back damaged: {str(error).splitlines()[0]:.200}")


class NodeFacts:
    """The facts of one node, restored on first use. `given` are those that are the same for all."""

    def __init__(self, given: Mapping[type, Any], shared: Mapping[type, Shared]) -> None:
        self._given = given
        self._shared = shared
        self.numbers = {fact: column.number for fact, column in shared.items()}
        """For each fact of the node: equal values have equal numbers."""

    def get(self, fact: type[F]) -> F | Unknown:
        """Return the fact, or why it is unavailable."""
        if (found := self._shared.get(fact)) is not None:
            return cast("F | Unknown", found.value)
        return cast("F | Unknown", self._given.get(fact, _NOT_QUERIED))


_NOT_QUERIED = Unknown(
    "it must be collected on the machine itself, and was not collected on the nodes", kind="not tried"
)


class FactStore:
    """Makes `NodeFacts` from responses."""

    def __init__(self, collectors: Iterable[Collector], given: Mapping[type, Any]) -> None:
        self._by_name = {part.name: part for part in collectors if not part.local and part.fact not in given}
        self._given = given
        self._numbers = count(1)
        self._known: dict[str, Recent[str, Shared]] = {name: Recent() for name in self._by_name}

    def facts_of(self, response: NodeResponse) -> NodeFacts:
        """Return the facts in one response. Facts that this doctor does not have are skipped."""
        return NodeFacts(
            self._given,
            {
                self._by_name[name].fact: self._shared(name, text)
                for name, text in response.facts.items()
                if name in self._by_name
            },
        )

    def _shared(self, name: str, text: str) -> Shared:
        known = self._known[name]
        return known.get(text) or known.put(text, Shared(self._by_name[name], text, next(self._numbers)))
