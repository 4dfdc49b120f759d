"""The manifest of the tree that verl is imported from: what a copy of it on another cluster must hold.

In a snapshot it says what the tree was where the job worked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from verl_doctor.toolkit.fact_markers import Markers
from verl_doctor.toolkit.fact_trees import SITE, Tree, VerlTrees
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.py_restore import restored
from verl_doctor.toolkit.sites_import import names_of_paths
from verl_doctor.toolkit.tree_manifest import Bare, Entry, entries, entry_of, without_our_table

_MOST = 200_000  # files; verl has 1,500
_OF_A_CHECKOUT = (".git", ".gitignore")


@dataclass(frozen=True)
class TreeManifest:
    """The files below `folder`, a line for each (`tree_manifest.Entry`). `package` is the package's folder below it, "" for itself.

    `installed`: an installer put it there, and keeps its own list of the files. Raises ValueError when a line is damaged,
    or when there are more than a tree may have.
    """

    folder: str
    package: str
    lines: tuple[str, ...]
    installed: bool = False

    def __post_init__(self) -> None:
        if len(self.lines) > _MOST:
            raise ValueError(f"it lists more than {_MOST:,} files")
        for _ in self.entries():
            pass

    def entries(self) -> Iterator[Entry]:
        """All files."""
        return map(entry_of, self.lines)


@collector(timeout=120)
def tree_manifest(trees: VerlTrees, markers: Markers | Unknown, marker: Marker) -> TreeManifest | Unknown:
    """Read every file of the checkout that holds the imported verl, or of the installed package."""
    tree = trees.imported
    top = top_of(tree)
    package = os.path.relpath(tree.folder, top)
    found = list(islice(entries(top, _bare(top, markers, marker.word)), _MOST + 1))
    if len(found) > _MOST:
        return Unknown(
            f"{top} holds more than {_MOST:,} files: name in its .gitignore what is no part of the tree"
        )
    return TreeManifest(
        str(top), "" if package == "." else package, tuple(one.line() for one in found), tree.found_in == SITE
    )


def top_of(tree: Tree) -> Path:
    """The folder that is copied as a whole: the checkout around the package, or the package alone where there is none."""
    folder = Path(tree.folder)
    if tree.project:
        return Path(tree.project)
    if tree.found_in != SITE:
        above = folder.parent.parent if folder.parent.name == "src" else folder.parent
        if any(os.path.exists(above / name) for name in _OF_A_CHECKOUT):
            return above
    return folder


def _bare(top: Path, markers: Markers | Unknown, ours: str) -> Bare:
    """Of files with marked lines the text without the patches, of a file of paths the names, of `pyproject.toml` what is not for this doctor."""
    marked: dict[str, dict[int, str]] = {}
    for line in () if isinstance(markers, Unknown) else markers.lines:
        marked.setdefault(os.path.relpath(line.path, top), {})[line.line] = line.marker

    def bare(path: str, content: bytes) -> bytes | None:
        if path in marked:
            text = restored(content.decode("utf-8", "surrogateescape"), marked[path], ours).text
            whole = text if content.endswith(b"\n") else text.rstrip("\r\n")
            return whole.encode("utf-8", "surrogateescape")
        if path.endswith(".py"):
            return names_of_paths(content)
        return without_our_table(content) if path == "pyproject.toml" else None

    return bare
