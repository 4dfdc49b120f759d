"""The contents of package folders, each listed once per run, however many collectors read it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from verl_doctor.toolkit.facts import collector


# A tuple for speed: there are 5,000 folders.
class Listing(NamedTuple):
    """A folder, by names.

    `sources` are its Python sources, each with its stat result or error number. `links` are the links that
    lead to folders. `error` is why it could not be listed, 0 if it could.
    """

    sources: Mapping[str, os.stat_result | int] = {}
    compiled: Sequence[str] = ()
    folders: Sequence[str] = ()
    links: Sequence[str] = ()
    error: int = 0


class Listings:
    """The listings of one run. A local handle: it does not travel in a facts file."""

    def __init__(self) -> None:
        self._known: dict[str, Listing] = {}
        self._digests: dict[str, bytes] = {}

    def of(self, folder: str) -> Listing:
        """Return the contents of a folder when it was first listed."""
        listing = self._known.get(folder)
        if listing is None:
            listing = self._known[folder] = _listed(folder)
        return listing

    def digest_below(self, top: str) -> bytes:
        """Return a digest of the state of each file below a folder, computed once."""
        known = self._digests.get(top)
        if known is None:
            lines = "".join(sorted(self._lines_below(top)))
            known = self._digests[top] = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).digest()
        return known

    def _lines_below(self, top: str) -> list[str]:
        """Return one line per file.

        Links to folders are followed, unless they lead back to a folder above.
        """
        lines: list[str] = []
        waiting: list[tuple[str, frozenset[str]]] = [(top, frozenset())]
        while waiting:
            folder, above = waiting.pop()
            listing = self.of(folder)
            if listing.error:
                lines.append(f"{folder}\0{listing.error}\n")
            waiting += [(f"{folder}/{name}", above) for name in listing.folders if name != "__pycache__"]
            for name in listing.links:
                path = f"{folder}/{name}"
                real = os.path.realpath(path)
                if real not in above and not f"{os.path.realpath(folder)}/".startswith(f"{real}/"):
                    waiting.append((path, above | {real}))
            lines += [line_of(f"{folder}/{name}", status) for name, status in listing.sources.items()]
            lines += [f"{folder}/{name}\n" for name in listing.compiled]
        return lines

    def status(self, path: str) -> os.stat_result | None:
        """Return the stat result of a file; None if there is no regular file.

        For a source, its whole folder is listed.
        """
        status: os.stat_result | int | None = None
        if path.endswith(".py"):
            folder, _, name = path.rpartition("/")
            status = self.of(folder).sources.get(name)
        if status is None:
            try:
                status = os.stat(path)  # noqa: PTH116 - 10,000 files, and no Path is needed
            except (OSError, ValueError):
                return None
        return status if isinstance(status, os.stat_result) and S_ISREG(status.st_mode) else None


@collector(local=True, kept=True)
def listings() -> Listings:
    """Start with no listings."""
    return Listings()


def _listed(folder: str) -> Listing:
    """Stat each source by its bare name: resolving the whole path again would cost half as much on top."""
    sources: dict[str, os.stat_result | int] = {}
    compiled, folders, links = [], [], []
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return Listing(error=error.errno or -1)
    try:
        for entry in os.scandir(descriptor):
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.is_symlink() and entry.is_dir():
                links.append(name)
            elif name.endswith(".py"):
                sources[name] = status_of(entry)
            elif name.endswith(".so"):
                compiled.append(name)
    except OSError as error:
        return Listing(error=error.errno or -1)
    finally:
        os.close(descriptor)
    return Listing(sources, compiled, folders, links)


def status_of(entry: os.DirEntry[str] | Path) -> os.stat_result | int:
    """Return the stat result of a file, or the error number."""
    try:
        return entry.stat()
    except OSError as error:
        return error.errno or -1


def line_of(path: str, status: os.stat_result | int) -> str:
    """Return the state of a file as a line, or the error number."""
    if isinstance(status, int):
        return f"{path}\0{status}\n"
    # The ctime also reveals a change of permissions: a readable file may be unreadable now.
    return f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}\0{status.st_ctime_ns}\n"
