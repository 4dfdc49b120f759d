"""Restores the original of a patched source, whose replaced lines remain as comments.

A patch is one or several kept lines (comments) and the code that replaces them, all ending in one marker. In
this doctor's patches the kept lines come first; between marked lines some may be unmarked, as a comment
cannot stand everywhere. In patches made by hand either may come first, and every line is marked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import parse

_KEPT = re.compile(r"(?P<indent>\s*)# ?(?P<code>.*\S)\s*")


@dataclass(frozen=True)
class Hunk:
    """One patch in a source: its lines `first` to `last` (from 1, both included) replace the lines `old`.

    `new` is the replacing code. Both are without the marker and without line ends.
    """

    marker: str
    first: int
    last: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class Restored:
    """A source without its patches.

    `hunks` are those removed, each with the line (from 1) where `old` now stands.

    `undetermined` are lines of patches whose original cannot be determined.
    """

    text: str
    hunks: tuple[tuple[Hunk, int], ...]
    undetermined: tuple[int, ...] = ()


def restored(text: str, marked: Mapping[int, str], ours: str) -> Restored:
    """Remove the patches from a source.

    `marked` maps lines to the marker at their end; `ours` is this doctor's word.
    """
    lines = text.splitlines()
    hunks: list[Hunk] = []
    undetermined: list[Hunk] = []
    for hunk in _hunks(lines, marked, ours):
        whole = bool(hunk.old and hunk.new) and _parses(_without(lines, [hunk])[0])
        (hunks if whole else undetermined).append(hunk)
    found, places = _without(lines, hunks)
    if hunks and not _parses(found):
        return Restored(text, (), tuple(hunk.first for hunk in (*hunks, *undetermined)))
    end = "\r\n" if "\r\n" in text else "\n"
    joined = "".join(f"{line}{end}" for line in found)
    return Restored(
        joined, tuple(zip(hunks, places, strict=True)), tuple(hunk.first for hunk in undetermined)
    )


def _parses(lines: Sequence[str]) -> bool:
    return isinstance(
        parse("\n".join(lines).encode("utf-8", "surrogatepass"), Path("<restored>")), ast.Module
    )


def _without(lines: Sequence[str], hunks: Sequence[Hunk]) -> tuple[list[str], list[int]]:
    """Return the lines with the old ones in place of hunks, and where (from 1) those stand."""
    found: list[str] = []
    places: list[int] = []
    done = 0
    for hunk in hunks:
        found += lines[done : hunk.first - 1]
        places.append(len(found) + 1)
        found += hunk.old
        done = hunk.last
    return [*found, *lines[done:]], places


def _hunks(lines: Sequence[str], marked: Mapping[int, str], ours: str) -> Iterator[Hunk]:
    numbers = sorted(marked)
    while numbers:
        first, marker = numbers[0], marked[numbers[0]]
        by_us = marker.startswith(f"{ours}:")
        last = (_ours(numbers, lines, marked, ours) if by_us else _by_hand(numbers, marked))[-1]
        kept = [n for n in numbers if n <= last and _is_comment(lines[n - 1])]
        old = [n for n in kept if marked[n] == marker and not _is_nested(lines[n - 1], marker, ours)]
        new = [n for n in range(first, last + 1) if n not in kept]
        yield Hunk(
            marker,
            first,
            last,
            tuple(_uncommented(_unmarked(lines[n - 1], marker)) for n in old),
            tuple(_unmarked(lines[n - 1], marked.get(n, "")) for n in new),
        )
        numbers = [n for n in numbers if n > last]


def _ours(numbers: Sequence[int], lines: Sequence[str], marked: Mapping[int, str], ours: str) -> list[int]:
    """Return the marked lines of a patch of ours: up to the next kept line that does not belong to it."""
    taken: list[int] = []
    markers = {marked[numbers[0]]}
    has_code = False
    for n in numbers:
        if _is_comment(lines[n - 1]):
            if _is_nested(lines[n - 1], marked[n], ours):
                markers.add(marked[n])
            elif has_code or marked[n] not in markers:
                break
        elif marked[n] not in markers:
            break
        else:
            has_code = True
        taken.append(n)
    return taken


def _is_nested(line: str, marker: str, ours: str) -> bool:
    """Return whether a kept line had itself been written by this doctor."""
    return re.search(rf"# {re.escape(ours)}: [A-Z]+\d+$", _unmarked(line, marker)) is not None


def _by_hand(numbers: Sequence[int], marked: Mapping[int, str]) -> list[int]:
    """Return consecutive marked lines."""
    first = numbers[0]
    return [
        number
        for index, number in enumerate(numbers)
        if number == first + index and marked[number] == marked[first]
    ]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _unmarked(line: str, marker: str) -> str:
    """Return a line without the marker at its end."""
    word, _, code = marker.partition(":")
    rest = rf":\s*{re.escape(code.strip())}" if code else ""
    return re.sub(rf"\s*#\s*{re.escape(word)}{rest}\s*$", "", line) if marker else line


def _uncommented(line: str) -> str:
    match = _KEPT.fullmatch(line)
    return f"{match['indent']}{match['code']}" if match else ""
