"""One cluster node's response to a request for its facts, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeResponse:
    """One node's response.

    `facts` holds each entry of its facts file (`factsfile`) as JSON text, by the fact's name.

    It is text because most of it is the same on all nodes: equal entries are decoded and restored once
    (`fleet`). `node` is the displayed name: the host name if it is known and unique, otherwise the address.
    `missing` is why there are no facts, "" if there are; it omits what differs between nodes, so one cause is
    reported once. `seconds` is the response time. `number` is Ray's number of the node, "" without Ray.
    """

    node: str
    address: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    seconds: float = 0.0
    number: str = ""
