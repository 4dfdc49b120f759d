"""What a transaction changed, as the journal records it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

State = Literal["applying", "applied", "undoing", "undone", "failed"]
Side = Literal["before", "after"]
KEPT: Final = "kept"
"""The beginning of the name under which an original file is kept."""


@dataclass(frozen=True)
class FileRecord:
    """A replaced, created or removed file, a created link, or a link made a private copy of its target.

    A link to a folder becomes a link to a `private_folder` with the folders `folders`; a file `within` one
    exists only in it. The content of a link is its target. `before` and `after` are SHA-256: `before` is None
    for a new file, `after` for a removed one. `path` is the plan's path, `file` the written path; `folders`
    are the folders that had to be made, outermost first; `mode` is octal. `atime` and `mtime` are the
    original's times in nanoseconds, None where they were not recorded. `linked` is the SHA-256 of the former
    target of a link that became a private copy.
    """

    kind: Literal["replace_file", "new_file", "removed_file", "new_link", "private_copy", "private_folder"]
    path: str
    file: str
    before: str | None
    after: str | None
    mode: str
    uid: int
    gid: int
    folders: tuple[str, ...] = ()
    atime: int | None = None
    mtime: int | None = None
    linked: str = ""
    within: str = ""


@dataclass(frozen=True)
class BytecodeRecord:
    """Bytecode caches that were written below `roots`, all by interpreters with the cache tag `tag`."""

    kind: Literal["compile_bytecode"]
    python: str
    roots: tuple[str, ...]
    tag: str


@dataclass(frozen=True)
class CommandRecord:
    """A command that was run."""

    kind: Literal["run_command"]
    argv: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class RemovalRecord:
    """A dead job's leftover to be removed, and the proof that it is unused. `size` is in bytes."""

    kind: Literal["removal"]
    what: str
    name: str
    proof: tuple[str, ...]
    size: int | None = None


@dataclass(frozen=True)
class InstallRecord:
    """Packages that were installed into `copy`, a copy of `environment`, or into `environment` itself.

    Its lock file is kept as `after`.
    """

    kind: Literal["install_packages"]
    environment: str
    copy: str
    argv: tuple[str, ...]
    cleared: tuple[str, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether the environment itself was changed."""
        return self.copy == self.environment


Record = FileRecord | BytecodeRecord | CommandRecord | RemovalRecord | InstallRecord


@dataclass(frozen=True)
class Planned:
    """A record with the contents that it refers to, before it is written."""

    record: Record
    contents: Mapping[Side, bytes]


@dataclass(frozen=True)
class FolderRecord:
    """A folder before its first file changed: its times in nanoseconds, and a digest of the names in it."""

    path: str
    atime: int
    mtime: int
    names: str


@dataclass(frozen=True)
class Run:
    """Changes that belong together: those of one run of the doctor, in any journals.

    `token` identifies the run, "" for a single change. `homes` are the journals that may contain a part of
    it, `environment` is the folder of the environment that it concerns.
    """

    token: str = ""
    homes: tuple[str, ...] = ()
    environment: str = ""


def new_run(homes: Iterable[Path], environment: Path) -> Run:
    """Return a new run, whose changes are undone together."""
    return Run(secrets.token_hex(8), tuple(map(str, dict.fromkeys(homes))), os.path.realpath(environment))


@dataclass(frozen=True)
class Entry:
    """One transaction as the journal records it. `token` makes the names of its temporary files unique.

    `owner` is a user, besides root and this one, whose entries in the journal are trusted.
    """

    home: Path
    number: int
    state: State
    time: str
    fix: str
    code: str
    token: str
    changes: tuple[Record, ...]
    run: Run = field(default_factory=Run)
    around: tuple[FolderRecord, ...] = ()
    owner: int = 0

    @property
    def id(self) -> str:
        """The name of the transaction that users see."""
        return f"{self.number:04}"

    @property
    def folder(self) -> Path:
        """The present folder of its files."""
        return self.home / f"{self.id}-{self.state}"

    def at(self, index: int, what: str) -> Path:
        """Return the file that holds `what` of the change number `index`."""
        return self.folder / f"{index}.{what}"

    def kept(self, index: int) -> Path:
        """Return the path of the original file of the change number `index`, if it could be kept."""
        return self.folder / f"{KEPT}.{index}"

    def files(self) -> list[tuple[int, FileRecord]]:
        """Return its changed files, with their numbers."""
        return [(index, r) for index, r in enumerate(self.changes) if isinstance(r, FileRecord)]
