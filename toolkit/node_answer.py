"""What one node of a cluster answered when it was asked for its facts, or why it did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NodeAnswer:
    """One node's answer. `facts` are as in a facts file (`factsfile`): entries by the fact's name, not yet restored.

    `node` names it to the reader: the host's name where it is known and single, else its address. `missing` says why there
    are no facts, "" when there are. `seconds` is how long the answer took.
    """

    node: str
    address: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""
    seconds: float = 0.0
