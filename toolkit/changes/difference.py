"""Unified diffs of two contents of a file."""

from __future__ import annotations

import difflib

_LONGEST = 40  # lines


def unified(before: bytes, after: bytes, names: tuple[str, str]) -> list[str]:
    """Return the rows of the diff, each with its line end. Bytes that are not UTF-8 are escaped."""
    old, new = (
        text.decode("utf-8", "backslashreplace").splitlines(keepends=True) for text in (before, after)
    )
    return [
        row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n"
        for row in difflib.unified_diff(old, new, *names)
    ]


def difference(path: str, old: bytes, new: bytes, names: tuple[str, str]) -> str:
    """Return the first lines of a unified diff."""
    rows = unified(old, new, (f"{path} ({names[0]})", f"{path} ({names[1]})"))
    more = len(rows) - _LONGEST
    return "".join(rows[:_LONGEST]) + (f"... and {more} more lines\n" if more > 0 else "")
