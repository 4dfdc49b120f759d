"""Folders for tests: in memory for the small ones, on the disk for those that fill it or measure it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
from pathlib import Path

import pytest


def is_long(item: pytest.Item) -> bool:
    """Return whether a test is not a fast one."""
    return item.get_closest_marker("slow") is not None or item.get_closest_marker("real") is not None


class Folders:
    """Folders of the running test."""

    def __init__(self, disk: Path, memory: Path | None, short: Path) -> None:
        """Folders of one test process, used by no other."""
        self._disk, self._memory, self._short = disk, memory or disk, short
        self._numbers = itertools.count()
        self._homes: dict[Path, Path] = {}
        self._top, self.name, self.failed = self._disk, "", False

    def begin(self, item: pytest.Item) -> None:
        """Begin with this test."""
        self._top = self._disk if is_long(item) else self._memory
        self.name, self.failed = item.name, False

    def new(self, top: Path | None = None) -> Path:
        """A new folder. They are numbered: `mktemp` would look through all earlier ones for each."""
        folder = (top or self._top) / str(next(self._numbers))
        folder.mkdir()
        return folder

    def end(self, folder: Path) -> None:
        """Remove a folder, but move that of a failed test to the disk, where it stays."""
        if self.failed:
            name = re.sub(r"\W", "_", self.name)[:30]
            _move(folder, self._disk / f"{name}-{folder.name}")
            return
        try:
            folder.rmdir()  # most of them are empty
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)

    def home(self) -> Path:
        """Return an empty home. If it is still empty, the next test gets it too.

        On the disk its path is short: Ray puts its sockets there, whose paths have at most 107 bytes.
        """
        top = self._short if self._top == self._disk else self._top
        home = self._homes.get(top)
        if home is None or not _is_empty(home):
            home = self._homes[top] = self.new(top)
        return home


def _move(folder: Path, to: Path) -> None:
    """Move a folder. On another disk its sockets, pipes and devices are left out: they cannot be copied."""
    try:
        folder.rename(to)
    except OSError:
        shutil.copytree(folder, to, symlinks=True, ignore=_special)
        shutil.rmtree(folder, ignore_errors=True)


def _special(folder: str, names: list[str]) -> list[str]:
    modes = ((name, Path(folder, name).lstat().st_mode) for name in names)
    return [
        name for name, mode in modes if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]


def _is_empty(folder: Path) -> bool:
    """Return whether a folder exists and is empty."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False
