"""Unified diffs of two contents of a file."""

from __future__ import annotations

import difflib


def unified(before: bytes, after: bytes, names: tuple[str, str]) -> list[str]:
    """Return the rows of the diff, each with its line end. Bytes that are not UTF-8 are escaped."""
    old, new = (
        text.decode("utf-8", "backslashreplace").splitlines(keepends=True) for text in (before, after)
    )
    return [
        row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n"
        for row in difflib.unified_diff(old, new, *names)
    ]
