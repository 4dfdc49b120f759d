"""Find the patches in a source tree by its marked lines: no journal is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.markers import Markers
from verl_doctor.toolkit.patchsets.line_patch import NoLinePatch, line_patches, runs
from verl_doctor.toolkit.patchsets.patchset import AnyPatch, NotCarried, Patch, patches_of
from verl_doctor.toolkit.sources.python.restore import restored
from verl_doctor.toolkit.sources.python.source import Unreadable, read


@dataclass(frozen=True)
class PatchedFile:
    """One file with marked lines. `path` is below the tree, or below its checkout if `base` is that.

    `marked` maps each marked line to its marker.
    """

    path: str
    text: str
    marked: Mapping[int, str]
    patches: tuple[AnyPatch, ...]
    not_carried: tuple[NotCarried, ...]
    base: str = "package"


def patched_files(markers: Markers, ours: str) -> list[PatchedFile]:
    """Read every file with marked lines; `ours` is this doctor's own marker."""
    return [
        _patched_file(Path(name), {line.line: line.marker for line in lines}, markers, ours)
        for name, lines in groupby(markers.lines, key=lambda line: line.path)
    ]


def _patched_file(name: Path, marked: Mapping[int, str], markers: Markers, ours: str) -> PatchedFile:
    base, folder = ("package", markers.folder)
    if markers.checkout and not name.is_relative_to(folder):
        base, folder = "checkout", markers.checkout
    path = str(name.relative_to(folder))
    text = _text(name)
    if isinstance(text, Unreadable):
        first = min(marked)
        return PatchedFile(path, "", {}, (), (NotCarried(path, first, marked[first], text.reason),), base)
    lines = text.splitlines()
    carried: list[AnyPatch] = []
    left: list[NotCarried] = []
    if base == "package" and path.endswith(".py"):
        for patch in _by_syntax(path, text, _at_line_ends(lines, marked), ours):
            if isinstance(patch, Patch):
                carried.append(patch)
            elif patch.marker.startswith(f"{ours}:"):
                left.append(patch)
    taken = _taken(marked, {patch.line for patch in (*carried, *left)}, ours)
    rest = {number: marker for number, marker in marked.items() if number not in taken}
    for found in line_patches(path, base, lines, rest):
        if isinstance(found, NoLinePatch):
            left.append(NotCarried(path, found.line, found.marker, found.reason))
        else:
            carried.append(found)
    carried.sort(key=lambda patch: patch.line)
    return PatchedFile(path, text, marked, tuple(carried), tuple(left), base)


def _by_syntax(path: str, text: str, marked: Mapping[int, str], ours: str) -> Iterator[Patch | NotCarried]:
    """Yield the patches of Python statements with kept old lines, and the marked lines in none of them."""
    if not marked:
        return
    before = restored(text, marked, ours)
    yield from patches_of(path, before)
    for line in before.undetermined:
        yield NotCarried(path, line, marked[line], "what it replaces is not kept beside it")


def _at_line_ends(lines: list[str], marked: Mapping[int, str]) -> dict[int, str]:
    """Return consecutive marked lines that all end in their marker."""
    found: dict[int, str] = {}
    for marker, first, last in runs(marked):
        end = re.compile(rf"#\s*{re.escape(marker)}\s*$")
        if all(end.search(line) for line in lines[first - 1 : last]):
            found.update(dict.fromkeys(range(first, last + 1), marker))
    return found


def _taken(marked: Mapping[int, str], begun: set[int], ours: str) -> set[int]:
    """Return the marked lines of the patches that begin in these lines.

    Ours are taken whole: lines between may be unmarked.
    """
    by_hand = (range(first, last + 1) for marker, first, last in runs(marked) if first in begun)
    own = (number for number, marker in marked.items() if marker.startswith(f"{ours}:"))
    return {number for run in by_hand for number in run} | set(own)


def _text(path: Path) -> str | Unreadable:
    source = read(path)
    if isinstance(source, Unreadable):
        return source
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Unreadable(f"{path} is not valid UTF-8: {error.reason}")
