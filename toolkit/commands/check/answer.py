"""The result of `check --each`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.render import each
from verl_doctor.toolkit.render.render import ReportAnswer


@dataclass(frozen=True)
class EachAnswer(ReportAnswer):
    """A report on launch files; as text, a line per finding, relative to `folder`, and a summary."""

    folder: Path = Path()

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return one line per finding, in the format of compilers and linters, then a summary."""
        return each.lines(self.shown, self.folder)
