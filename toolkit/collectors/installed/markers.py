"""The lines of the verl tree that have been patched and marked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.marker import Marker, foreign_words, marked_lines

_LARGEST = 2_000_000  # bytes; a larger source file was generated
_CARRIED = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".toml")
_MOST = 20_000  # files of a checkout next to the package
_UP = 3  # folders above the package in which a checkout may begin
# Left in a checkout by jobs and tools, and never patched.
_LEFT = frozenset(
    {"__pycache__", "node_modules", "site-packages", "wandb", "outputs", "checkpoints", "build"}
)


@dataclass(frozen=True)
class MarkedLine:
    """A marked line: where, and the marker without its `#`.

    Not the line itself, which may contain a secret.
    """

    path: str
    line: int
    marker: str


@dataclass(frozen=True)
class Markers:
    """All marked lines of one tree, in the order of its files.

    `checkout` is the folder around the package whose scripts and configurations were read too, "" if none
    were. `cut`: it holds more files than are read.
    """

    folder: str
    lines: tuple[MarkedLine, ...] = ()
    checkout: str = ""
    cut: bool = False


@collector(timeout=10, kept=True)
def markers(trees: VerlTrees, marker: Marker) -> Markers:
    """Read every source file of the tree."""
    return markers_in(trees.imported.folder, marker)


def markers_in(folder: str, marker: Marker, known: Iterable[str] = (), *, checkout: bool = False) -> Markers:
    """Return the marked lines of a tree.

    A foreign marker counts everywhere once it marks a kept line, or if it is `known`.

    With `checkout`, scripts, YAML and TOML files of the package and of the checkout around it are read as
    well.
    """
    top = _checkout(Path(folder)) if checkout else None
    paths = list(_sources(Path(folder), _CARRIED if checkout else (".py",)))
    around = [] if top is None else list(islice(_sources(top, _CARRIED, Path(folder)), _MOST + 1))
    texts = {path: text for path in (*paths, *around[:_MOST]) if (text := _text(path))}
    words = frozenset(known) | {word for text in texts.values() for word in foreign_words(text, marker)}
    found = [
        MarkedLine(str(path), number, marker_text)
        for path, text in texts.items()
        for number, marker_text, _ in marked_lines(text, marker, words)
    ]
    return Markers(folder, tuple(found), str(top or ""), len(around) > _MOST)


def _checkout(folder: Path) -> Path | None:
    """Return the folder of the checkout that contains a package, None for an installed one."""
    if {"site-packages", "dist-packages"} & set(folder.parts):
        return None
    for above in list(folder.parents)[:_UP]:
        if any(os.path.lexists(above / name) for name in (".git", "pyproject.toml", "setup.py")):
            return above
    return None


def _sources(folder: Path, kinds: tuple[str, ...], but: Path | None = None) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in sorted(folders)
            if name not in _LEFT
            and not name.startswith(".")
            and Path(place, name) != but
            and not os.path.lexists(Path(place, name, "pyvenv.cfg"))
        ]
        yield from (Path(place, name) for name in sorted(names) if name.endswith(kinds))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= _LARGEST else ""
    except OSError:
        return ""
