"""Planned repairs in SARIF form: the lines of each file to delete, and their replacements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_FILE = "+++ b"

Artifact = Callable[[str], dict[str, Any]]
"""Returns a path's name in the document."""


def artifact_changes(diff: str, named: Artifact) -> list[dict[str, Any]]:
    """Return the file changes in a unified diff.

    The diff is as `difference.unified` writes it with `a` and `b` in front of paths.

    Everything else in it (commands, variables) is no change of a file and is skipped.
    """
    changes: list[dict[str, Any]] = []
    lines = iter(diff.split("\n"))
    for line in lines:
        if line.startswith(_FILE):
            path = line.removeprefix(_FILE).rstrip()
            changes.append({"artifactLocation": named(path), "replacements": []})
        elif changes and (match := _HUNK.match(line)):
            old, new = (int(number) if number else 1 for number in (match[2], match[3]))
            # A hunk without old lines has the number of the line before it.
            first = int(match[1]) + (old == 0)
            changes[-1]["replacements"] += _replacements(first, old, new, lines)
    return [change for change in changes if change["replacements"]]


def _replacements(first: int, old: int, new: int, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the runs of changed lines in a hunk of so many old and new lines, starting at the first line.

    The first old line has this number.
    """
    at, gone, come = first, 0, ""
    while old > 0 or new > 0:
        line = next(lines, " ")
        if line.startswith("-"):
            gone, old = gone + 1, old - 1
        elif line.startswith("+"):
            come, new = f"{come}{line[1:]}\n", new - 1
        elif not line.startswith("\\"):
            yield from _replacement(at, gone, come)
            at, gone, come = at + gone + 1, 0, ""
            old, new = old - 1, new - 1
    yield from _replacement(at, gone, come)


def _replacement(at: int, gone: int, come: str) -> Iterator[dict[str, Any]]:
    """Yield whole lines: from the first column of a line to the first column after the last."""
    if gone or come:
        region = {"startLine": at, "startColumn": 1, "endLine": at + gone, "endColumn": 1}
        yield {"deletedRegion": region, "insertedContent": {"text": come}}
