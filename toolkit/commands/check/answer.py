"""What `check --each` answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.engine import check_each
from verl_doctor.toolkit.render.render import ReportAnswer


@dataclass(frozen=True)
class EachAnswer(ReportAnswer):
    """A report on launch files; as text a line for each finding, with paths below `folder` shortened."""

    folder: Path = Path()

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return a line for each finding, as compilers and linters write it."""
        return check_each.lines(self.shown, self.folder)
