"""The result of `snapshot`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.snapshot import document
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.text import harmless


@dataclass(frozen=True)
class SnapshotAnswer(Answer):
    """What was taken, the verdict on this machine, and the file that holds it, with its size in bytes.

    `nodes` are the options that named other nodes.
    """

    snapshot: Snapshot
    report: Report
    file: Path
    size: int
    nodes: Sequence[str] = ()

    def document(self) -> document.SnapshotDocument:
        """Return in JSON types what the snapshot contains, and what could not be examined."""
        return document.document(self.snapshot, self.report, self.file, self.size, self.nodes)

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return the same as text."""
        return map(harmless, document.lines(self.document()))

    def exit_code(self) -> ExitCode:
        """Return 0, or 3 if a node did not respond."""
        return ExitCode.COULD_NOT_CHECK if self.snapshot.nodes.missing else ExitCode.OK
