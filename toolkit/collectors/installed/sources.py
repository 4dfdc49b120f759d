"""The bytes of source files for plans, pure functions that read this handle instead of the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import Unreadable, read


@dataclass(frozen=True)
class SourceFiles:
    """Source files of this machine. A local handle: it does not travel in a facts file.

    `planned` is the content that a plan would give to some of them.
    """

    planned: Mapping[str, bytes] = field(default_factory=dict)

    def read(self, path: str) -> bytes | Unreadable:
        """Return the content of a file."""
        if path in self.planned:
            return self.planned[path]
        return read(Path(path))


@collector(local=True)
def source_files(machine: Machine) -> SourceFiles:
    """Provide the source files of this machine."""
    return SourceFiles(machine.planned)
