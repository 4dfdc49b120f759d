"""The facts of many nodes in a snapshot: equal entries are stored once, similar ones as their changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.snapshot.json_changes import Changes, changed, changes
from verl_doctor.toolkit.system.node_names import expand, fold, plain

_BASES = 4
"""Entries of a fact that others are compared with: as many as a cluster is likely to have kinds of nodes."""


@dataclass(frozen=True)
class _Entry:
    """One distinct entry of a fact: its text, or a similar entry and the changes."""

    text: str = ""
    like: int = 0
    changes: Changes = field(default_factory=Changes)


@dataclass
class _Column:
    """All nodes' entries of one fact: the distinct entries, and the index of each node's."""

    entries: list[_Entry] = field(default_factory=list)
    of: dict[str, int] = field(default_factory=dict)
    known: dict[bytes, int] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)

    def add(self, node: str, text: str) -> None:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if (number := self.known.get(digest)) is None:
            number = self.known[digest] = len(self.entries)
            self.entries.append(self._entry(text, number))
        self.of[node] = number

    def _entry(self, text: str, number: int) -> _Entry:
        value = json.loads(text)
        for base in self.bases:
            found = changes(json.loads(self.entries[base].text), value)
            if 2 * len(json.dumps([found.put, found.without])) < len(text):
                return _Entry(like=base, changes=found)
        if len(self.bases) < _BASES:
            self.bases.append(number)
        return _Entry(text)

    def text(self, number: int) -> str:
        """Return an entry as the node sent it.

        Raises ValueError if the file that it was read from is damaged.
        """
        entry = self.entries[number]
        if entry.text:
            return entry.text
        return json.dumps(changed(json.loads(self.entries[entry.like].text), entry.changes))


@dataclass
class FoldedNodes:
    """The responses of nodes, folded as they arrive. Of a node that responds twice the first response counts.

    `addresses` are those of the nodes that responded, `missing` is why the facts of the others are missing.
    """

    addresses: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    columns: dict[str, _Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.addresses)

    def add(self, response: NodeResponse) -> None:
        """Fold in one response."""
        node = plain(response.node)
        if node in self.addresses:
            return
        if response.missing or not response.facts:
            self.missing[node] = response.missing or "it answered without any fact"
            return
        self.missing.pop(node, None)
        self.addresses[node] = response.address
        for name, text in response.facts.items():
            self.columns.setdefault(name, _Column()).add(node, text)

    def responses(self) -> Iterator[NodeResponse]:
        """Yield the responses, those of the missing nodes last. Raises ValueError if the file was damaged."""
        texts: dict[tuple[str, int], str] = {}
        for node, address in self.addresses.items():
            facts = {}
            for name, column in self.columns.items():
                if (number := column.of.get(node)) is not None:
                    # An entry of a single node is not kept.
                    shared = not column.entries[number].changes.put
                    facts[name] = texts.get((name, number)) or column.text(number)
                    if shared:
                        texts[name, number] = facts[name]
            yield NodeResponse(node, address, facts)
        for node, reason in self.missing.items():
            yield NodeResponse(node, missing=reason)

    def document(self) -> dict[str, Any]:
        """Return the nodes as JSON types: for each fact the entries, and the nodes that have them."""
        facts = {name: list(_entries(column)) for name, column in sorted(self.columns.items())}
        return {"addresses": self.addresses, "missing": _by_reason(self.missing), "facts": facts}


def _entries(column: _Column) -> Iterator[dict[str, Any]]:
    nodes: dict[int, list[str]] = {}
    for node, number in column.of.items():
        nodes.setdefault(number, []).append(node)
    for number, entry in enumerate(column.entries):
        entry_fields: dict[str, Any] = {"nodes": fold(nodes[number])}
        if entry.text:
            yield {**entry_fields, "entry": json.loads(entry.text)}
        else:
            but = {"but": entry.changes.put} if entry.changes.put else {}
            without = {"without": list(entry.changes.without)} if entry.changes.without else {}
            yield {**entry_fields, "like": entry.like, **but, **without}


def _by_reason(missing: Mapping[str, str]) -> dict[str, str]:
    nodes: dict[str, list[str]] = {}
    for node, reason in missing.items():
        nodes.setdefault(reason, []).append(node)
    return {fold(names): reason for reason, names in nodes.items()}


def nodes_from(document: Mapping[str, Any]) -> FoldedNodes:
    """Return the nodes of a document. Raises ValueError, TypeError or KeyError if it is damaged."""
    addresses = {plain(node): str(address) for node, address in document["addresses"].items()}
    missing = {
        plain(node): str(reason) for folded, reason in document["missing"].items() for node in expand(folded)
    }
    columns = {name: _column(entries, addresses) for name, entries in document["facts"].items()}
    return FoldedNodes(addresses, missing, columns)


def _column(entries: Iterable[Mapping[str, Any]], known: Mapping[str, str]) -> _Column:
    column = _Column()
    for number, entry in enumerate(entries):
        nodes = expand(entry["nodes"])
        if not known.keys() >= set(nodes) or not column.of.keys().isdisjoint(nodes):
            raise ValueError("a fact names unknown nodes, or nodes twice")
        column.entries.append(_entry_from(entry, column.entries))
        column.of.update(dict.fromkeys(nodes, number))
    return column


def _entry_from(document: Mapping[str, Any], before: list[_Entry]) -> _Entry:
    if "entry" in document:
        return _Entry(json.dumps(document["entry"]))
    like = document["like"]
    if not isinstance(like, int) or not 0 <= like < len(before) or not before[like].text:
        raise ValueError("an entry is like none")
    these = Changes(dict(document.get("but", {})), tuple(map(str, document.get("without", ()))))
    return _Entry(like=like, changes=these)
