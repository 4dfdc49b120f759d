"""The types of columns as text, such as struct<a: string, b: list<struct<c: int64>>>."""

from __future__ import annotations

import re

LONGEST = 2000  # characters of a type; longer ones were cut
_VALUE = re.compile(r"u?int\d+|halffloat|float|double|bool|string|binary")


def fields(kind: str) -> dict[str, str]:
    """Return the fields of a struct, each with its type."""
    if not kind.startswith("struct<") or not kind.endswith(">"):
        return {}
    parts, depth = [""], 0
    for sign in kind[len("struct<") : -1]:
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    pairs = (part.strip().partition(": ") for part in parts)
    return {name: inner for name, _, inner in pairs}


def difference(one: str, other: str) -> tuple[str, str, str] | None:
    """Return where `datasets` cannot align two types of a column, and both types there; None if it can, or if that is uncertain.

    Fields that only one of two structs has are filled in, but not within a list (datasets/features/features.py).
    """
    if one == other or max(len(one), len(other)) >= LONGEST or "null" in (one, other):
        return None
    here, there = fields(one), fields(other)
    if here and there:
        found = ((name, difference(here[name], there[name])) for name in here if name in there)
        return next(((f".{name}{at[0]}", *at[1:]) for name, at in found if at), None)
    return ("", one, other) if _differ(one, other) else None


def _differ(one: str, other: str) -> bool:
    """Return whether two types are certainly not the same. What is null, or not among the common types, may be."""
    if "null" in (one, other):
        return False
    here, there = fields(one), fields(other)
    if here and there:
        shared = here.keys() & there.keys()
        return here.keys() != there.keys() or any(_differ(here[name], there[name]) for name in shared)
    kinds = [_family(kind) for kind in (one, other)]
    if kinds == ["list", "list"]:
        return _differ(one[len("list<") : -1], other[len("list<") : -1])
    return "" not in kinds and kinds[0] != kinds[1]


def _family(kind: str) -> str:
    """Return a common type, "list" or "struct"; "" for another."""
    if kind.endswith(">") and kind.startswith(("list<", "struct<")) and "null" not in kind:
        return kind.partition("<")[0]
    return kind if _VALUE.fullmatch(kind) else ""
