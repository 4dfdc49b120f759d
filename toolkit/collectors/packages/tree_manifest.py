"""The manifest of the tree that verl is imported from: what a copy of it on another cluster must contain.

In a snapshot it records the tree of the machine on which the job worked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, cast, get_args

from verl_doctor.toolkit.collectors.installed.markers import Markers
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.packages.git_ignored import Ignored, ignored
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.sources.python.restore import restored
from verl_doctor.toolkit.sources.python.site_paths import names_of_paths
from verl_doctor.toolkit.system import toml

Kind = Literal["file", "link", "broken link", "pointer", "unreadable"]

JUNK = ignored(
    """\
.git
.hg
.svn
__pycache__/
*.py[cod]
*.egg-info
.DS_Store
*~
*.sw[op]
.nfs????????????????*
.ipynb_checkpoints/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.idea/
.vscode/
.venv/
/venv/
/node_modules/
/build/
/wandb/
/outputs/
/checkpoints/
/tensorboard_log/
/mlruns/
/swanlog/
verl-doctor.toml
""".splitlines()
)
"""What a comparison of two copies of a tree ignores."""

_LARGE = 64 * 2**20  # bytes; of a larger file the ends are read
_END = 2**20
_LFS = (
    b"version https://git-lfs.github.com/spec/"  # https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
)
_LFS_LARGEST = 1024
_DIGITS = 16
_KINDS = frozenset(get_args(Kind))
_LONGEST = (
    8192  # characters of a path; Linux opens 4096 bytes, https://man7.org/linux/man-pages/man2/open.2.html
)
_BELOW = re.compile(r"\.|(?!\.{1,2}(?:/|\Z))[^/\0]+(?:/(?!\.{1,2}(?:/|\Z))[^/\0]+)*")

Bare = Callable[[str, bytes], bytes | None]
"""The part of a file's path and content that both clusters should share, None if that is all of it."""


@dataclass(frozen=True)
class Entry:
    """One file.

    `path` is below the tree, `mode` its permission bits, `digest` of its content or of its link target.

    `bare` is the digest of the part that is not specific to one cluster: of a file without its patches. A
    "pointer" stands for a file that Git LFS has not fetched.
    """

    path: str
    kind: Kind
    size: int
    mode: int
    digest: str
    bare: str

    def line(self) -> str:
        """Return the entry as a line of text."""
        kind = self.kind.replace(" ", "-")
        return f"{kind} {self.mode:o} {self.size} {self.digest} {self.bare} {self.path}"


def entry_of(line: str) -> Entry:
    """Parse an entry from its line. Raises ValueError if it is invalid, or not of a file below a tree."""
    written, mode, size, digest, bare, path = line.split(" ", 5)
    kind = written.replace("-", " ")
    if kind not in _KINDS:
        raise ValueError(f"{kind[:40]} is not a kind of file")
    if len(path) > _LONGEST or not _BELOW.fullmatch(path):
        raise ValueError(f"{path[:40]} is not a path below a tree")
    return Entry(path, cast("Kind", kind), int(size), int(mode, 8), digest, bare)


def entries(top: Path, bare: Bare = lambda *_: None) -> Iterator[Entry]:
    """Yield every file of a tree, folder by folder in the order of the names.

    A link to a folder is an entry, and not followed.
    """
    waiting: list[tuple[str, Ignored]] = [("", JUNK)]
    while waiting:
        below, rules = waiting.pop()
        try:
            found = sorted(os.scandir(top / below), key=lambda entry: entry.name)
        except OSError:
            yield Entry(below or ".", "unreadable", 0, 0, "-", "-")
            continue
        if any(entry.name == ".gitignore" for entry in found):
            rules = rules.below(below, _text(top / below / ".gitignore"))
        folders = []
        for entry in found:
            path = f"{below}/{entry.name}" if below else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules.leaves_out(path, is_folder=is_folder):
                continue
            if is_folder:
                folders.append((path, rules))
            elif (seen := _entry(path, entry, bare)) is not None:
                yield seen
        waiting += reversed(folders)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _entry(path: str, listed: os.DirEntry[str], bare: Bare) -> Entry | None:
    try:
        if listed.is_symlink():
            target = os.readlink(listed.path)  # noqa: PTH115 - 10,000 files, and no Path is needed
            kind: Kind = "link" if os.path.exists(listed.path) else "broken link"
            digest = _digest(os.fsencode(target))
            return Entry(path, kind, 0, 0, digest, digest)
        status = listed.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return None  # a socket or a pipe is not part of a tree
        size, mode = status.st_size, stat.S_IMODE(status.st_mode)
        with open(listed.path, "rb") as file:  # noqa: PTH123 - see above
            if size > _LARGE:
                digest = f"ends:{_digest(file.read(_END) + _last(file.fileno(), size))}"
                return Entry(path, "file", size, mode, digest, digest)
            content = file.read()
    except OSError:
        return Entry(path, "unreadable", 0, 0, "-", "-")
    digest = _digest(content)
    inner = bare(path, content)
    kind = "pointer" if size < _LFS_LARGEST and content.startswith(_LFS) else "file"
    return Entry(path, kind, len(content), mode, digest, digest if inner is None else _digest(inner))


def _last(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, _END, size - _END)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def without_our_table(content: bytes) -> bytes | None:
    """Return a `pyproject.toml` without verl-doctor's table, which holds one cluster's paths.

    None if it is not TOML.
    """
    try:
        document = toml.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    tool = document.get("tool")
    if isinstance(tool, dict):
        tool.pop("verl-doctor", None)
        if not tool:
            del document["tool"]
    return json.dumps(document, sort_keys=True, default=str).encode()


_MOST = 200_000  # files; verl has 1,500
_OF_A_CHECKOUT = (".git", ".gitignore")


@dataclass(frozen=True)
class TreeManifest:
    """The files below `folder`, a line for each (`tree_manifest.Entry`).

    `package` is the package's folder below it, "" for itself.

    `installed`: an installer put it there, and keeps its own list of the files. Raises ValueError if a line
    is damaged, or if there are too many files.
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
        """Yield all files."""
        return map(entry_of, self.lines)


@collector(timeout=120, kept=True)
def tree_manifest(trees: VerlTrees, markers: Markers | Unknown, marker: Marker) -> TreeManifest | Unknown:
    """Read every file of the checkout that contains the imported verl, or of the installed package."""
    tree = trees.imported
    top = top_of(tree)
    package = os.path.relpath(tree.folder, top)
    found = list(islice(entries(top, _bare(top, markers, marker.word)), _MOST + 1))
    if len(found) > _MOST:
        return Unknown(
            f"{top} holds more than {_MOST:,} files: list in its .gitignore what does not belong to the tree"
        )
    return TreeManifest(
        str(top),
        "" if package == "." else package,
        tuple(entry.line() for entry in found),
        tree.place == "site-packages",
    )


def top_of(tree: Tree) -> Path:
    """Return the folder that is copied as a whole: the checkout around the package, or the package alone."""
    folder = Path(tree.folder)
    if tree.project:
        return Path(tree.project)
    if tree.place != "site-packages":
        above = folder.parent.parent if folder.parent.name == "src" else folder.parent
        if any(os.path.exists(above / name) for name in _OF_A_CHECKOUT):
            return above
    return folder


def _bare(top: Path, markers: Markers | Unknown, ours: str) -> Bare:
    """Return what to compare of each file.

    Marked files come without patches, a file of paths counts by its names, and `pyproject.toml` comes without
    verl-doctor's part.
    """
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
