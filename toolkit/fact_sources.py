"""The bytes of source files, for plans: a plan is a pure function, so it asks this handle instead of the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.py_source import Unreadable, read


@dataclass(frozen=True)
class SourceFiles:
    """Source files of this machine. A local handle: it does not travel in a facts file."""

    def read(self, path: str) -> bytes | Unreadable:
        """The content of a file."""
        return read(Path(path))


@collector(local=True)
def source_files() -> SourceFiles:
    """Hand out the source files of this machine."""
    return SourceFiles()
