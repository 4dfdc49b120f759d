"""The result of `compare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.compare import render
from verl_doctor.toolkit.comparison import document
from verl_doctor.toolkit.comparison.judge import Comparison
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode


@dataclass(frozen=True)
class ComparisonAnswer(Answer):
    """What differs between two clusters. With `every` also harmless differences."""

    comparison: Comparison
    every: bool = False

    def document(self) -> Mapping[str, Any]:
        """Return all differences in JSON types."""
        return document.document(self.comparison)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the differences as text."""
        return render.text_lines(self.comparison, width, every=self.every)

    def markdown_lines(self) -> Iterable[str]:
        """Return the differences as a page."""
        return render.markdown_lines(self.comparison, every=self.every)

    def exit_code(self) -> ExitCode:
        """Return 0 if no difference matters, 1 if one does, 3 if something could not be read."""
        return self.comparison.exit_code
