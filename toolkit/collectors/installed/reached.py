"""Modules that a program imports when it starts: those at its file's left margin, followed recursively.

Files are only read as text, so that thousands of them take little time. A package that is reached adds its
distribution's requirements: libraries such as transformers import most of themselves lazily.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import read

_IMPORT = re.compile(
    rb"^(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+\(?([^#\n(]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_REQUIRED = re.compile(rb"^Requires-Dist:[ \t]*([\w.-]+)(?![^\n]*\bextra\b)", re.MULTILINE)
_MOST_FILES = 4000


def reached(names: Iterable[str], module: str, folders: Iterable[str]) -> frozenset[str]:
    """Return the subset of these top-level names that a program imports, searching these folders in order."""
    wanted = set(names)
    search = _Search([Path(folder) for folder in folders])
    found: set[str] = set()
    for name in search.names(module):
        found |= wanted & {name}
        if found == wanted:
            break
    return frozenset(found)


class _Search:
    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.files = 0
        self.modules: set[str] = set()
        self.tops: dict[str, Path | None] = {}
        """The folder that holds each top-level name, None where none does."""

    def names(self, module: str) -> Iterator[str]:
        """Yield every top-level name that is imported, the nearest first."""
        waiting = deque([module])
        while waiting and self.files < _MOST_FILES:
            name = waiting.popleft()
            if name in self.modules:  # most imports are of what others import too
                continue
            top = name.partition(".")[0]
            if top not in self.tops:
                ends = (top, f"{top}.py")
                self.tops[top] = next(
                    (folder for folder in self.folders if any(os.path.exists(folder / end) for end in ends)),
                    None,
                )
                yield top
                waiting += self._required(top)
            for own, path in self._files(name, self.tops[top]):
                source = read(path)
                if isinstance(source, bytes):
                    waiting += _imported(source, own, is_package=path.name == "__init__.py")

    def _files(self, name: str, folder: Path | None) -> Iterator[tuple[str, Path]]:
        """Yield the files that importing a module runs and that were not met before.

        They are those of its packages, and its own.
        """
        steps = name.split(".")
        for end in range(1, len(steps) + 1):
            own = ".".join(steps[:end])
            if own in self.modules:
                continue
            self.modules.add(own)
            if folder is None:
                continue
            place = os.path.join(folder, *steps[:end])  # noqa: PTH118 - tens of thousands of them
            for path in (f"{place}/__init__.py", f"{place}.py"):
                if os.path.isfile(path):
                    self.files += 1
                    yield own, Path(path)

    def _required(self, top: str) -> Iterator[str]:
        """Yield the requirements of the distribution of that name, without any extra."""
        for folder in self.folders:
            for metadata in folder.glob(f"{top}-*.dist-info/METADATA"):
                source = read(metadata)
                for match in _REQUIRED.finditer(source if isinstance(source, bytes) else b""):
                    yield match[1].decode().replace("-", "_").lower()


def _imported(source: bytes, module: str, *, is_package: bool) -> Iterator[str]:
    steps = module.split(".")
    for dots, base, names, plain in (match.groups(b"") for match in _IMPORT.finditer(source)):
        if plain:
            yield from (part.split()[0] for part in plain.decode().split(",") if part.split())
            continue
        above = steps[: len(steps) - len(dots) + is_package] if dots else []
        start = ".".join([*above, *([base.decode()] if base else [])])
        if start:
            yield start
            yield from (f"{start}.{part.split()[0]}" for part in names.decode().split(",") if part.split())
