"""Which lines of the verl tree somebody has patched and marked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.fact_trees import VerlTrees
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.marker import Marker, foreign_words, marked_lines

_LARGEST = 2_000_000  # bytes; a source file that is larger was generated


@dataclass(frozen=True)
class MarkedLine:
    """One marked line: where, and the marker without its `#`. Not the line itself, in which a secret may stand."""

    path: str
    line: int
    marker: str


@dataclass(frozen=True)
class Markers:
    """All marked lines of one tree, in the order of its files."""

    folder: str
    lines: tuple[MarkedLine, ...] = ()


@collector(timeout=10)
def markers(trees: VerlTrees, marker: Marker) -> Markers:
    """Read every source file of the tree."""
    return markers_in(trees.imported.folder, marker)


def markers_in(folder: str, marker: Marker, known: Iterable[str] = ()) -> Markers:
    """The marked lines of a tree: a word counts as a foreign marker everywhere once it marks a kept line, or where it is `known`."""
    texts = dict(_sources(Path(folder)))
    words = frozenset(known) | {word for text in texts.values() for word in foreign_words(text, marker)}
    found = [
        MarkedLine(str(path), number, said)
        for path, text in texts.items()
        for number, said, _ in marked_lines(text, marker, words)
    ]
    return Markers(folder, tuple(found))


def _sources(folder: Path) -> Iterator[tuple[Path, str]]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if name.endswith(".py"):
                try:
                    if path.stat().st_size <= _LARGEST:
                        yield path, path.read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue
