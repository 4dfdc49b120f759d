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


def difference(left: str, right: str) -> tuple[str, str, str] | None:
    """Return where `datasets` cannot align two types of a column, and both types there.

    The result is None if it can, or if that is uncertain.

    Fields that only one of two structs has are filled in, but not within a list
    (datasets/features/features.py).
    """
    if left == right or max(len(left), len(right)) >= LONGEST or "null" in (left, right):
        return None
    left_fields, right_fields = fields(left), fields(right)
    if left_fields and right_fields:
        found = (
            (name, difference(left_fields[name], right_fields[name]))
            for name in left_fields
            if name in right_fields
        )
        return next(((f".{name}{at[0]}", *at[1:]) for name, at in found if at), None)
    return ("", left, right) if _differ(left, right) else None


def _differ(left: str, right: str) -> bool:
    """Return whether two types are certainly not the same.

    What is null, or not among the common types, may be.
    """
    if "null" in (left, right):
        return False
    left_fields, right_fields = fields(left), fields(right)
    if left_fields and right_fields:
        shared = left_fields.keys() & right_fields.keys()
        return left_fields.keys() != right_fields.keys() or any(
            _differ(left_fields[name], right_fields[name]) for name in shared
        )
    kinds = [_family(kind) for kind in (left, right)]
    if kinds == ["list", "list"]:
        return _differ(left[len("list<") : -1], right[len("list<") : -1])
    return "" not in kinds and kinds[0] != kinds[1]


def _family(kind: str) -> str:
    """Return a common type, "list" or "struct"; "" for another."""
    if kind.endswith(">") and kind.startswith(("list<", "struct<")) and "null" not in kind:
        return kind.partition("<")[0]
    return kind if _VALUE.fullmatch(kind) else ""
