"""Names that stand in for others: numbered by kind, the same one wherever the same name stands."""

from __future__ import annotations


class StandIns:
    """Gives and remembers them."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {}

    def of(self, kind: str, name: str) -> str:
        """`address-1` for the first name of that kind, `address-2` for the next other one."""
        return f"{kind}-{self.number(kind, name)}"

    def number(self, kind: str, name: str) -> str:
        """The number alone."""
        known = self._given.setdefault(kind, {})
        return known.setdefault(name, str(len(known) + 1))
