"""The contents of package folders, each listed once per run, however many collectors read it."""

from __future__ import annotations

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

    def of(self, folder: str) -> Listing:
        """Return the contents of a folder when it was first listed."""
        listing = self._known.get(folder)
        if listing is None:
            listing = self._known[folder] = _listed(folder)
        return listing

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
