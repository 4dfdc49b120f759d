"""Reading what nodes answer: equal entries of many nodes are understood once and shared."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.node_program import unpacked


class NodeReader:
    """Understands the answers of one look at a cluster."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def read(self, text: str) -> tuple[Mapping[str, Any], str]:
        """The entries of `child_node`'s answer by the facts' names, and why there are none, "" when there are."""
        try:
            answer = json.loads(text)
            if "facts" not in answer:
                return {}, str(answer["missing"])
            return {name: self._entry(packed) for name, packed in answer["facts"].items()}, ""
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
            return (
                {},
                "its answer was cut off or is damaged" if text else "its process ended without an answer",
            )

    def _entry(self, packed: str) -> Any:
        if packed not in self._known:
            self._known[packed] = unpacked(packed)
        return self._known[packed]
