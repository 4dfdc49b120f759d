"""Pseudonyms, numbered by kind; the same name always gets the same one."""

from __future__ import annotations


class StandIns:
    """Assigns and remembers pseudonyms."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {}

    def of(self, kind: str, name: str) -> str:
        """`address-1` for the first name of that kind, `address-2` for the next other one."""
        return f"{kind}-{self.number(kind, name)}"

    def number(self, kind: str, name: str) -> str:
        """Only the number."""
        known = self._given.setdefault(kind, {})
        return known.setdefault(name, str(len(known) + 1))
