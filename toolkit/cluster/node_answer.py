"""What one node of a cluster answered when it was asked for its facts, or why it did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeAnswer:
    """One node's answer. `facts` holds each entry of its facts file (`factsfile`) as JSON text, by the fact's name.

    It is text because most of it is the same on all nodes: what is equal is decoded and restored once (`fleet`).
    `node` names it to the reader: the host's name where it is known and single, else its address. `missing` says why there
    are no facts, "" when there are; without what differs from node to node, so that one cause is said once. `seconds` is
    how long the answer took. `number` is Ray's for the node, "" without Ray.
    """

    node: str
    address: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    seconds: float = 0.0
    number: str = ""
