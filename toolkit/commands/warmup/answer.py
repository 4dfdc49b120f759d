"""The result of `warmup`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.warmup import document, render
from verl_doctor.toolkit.commands.warmup.warmup import Warmup
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode


@dataclass(frozen=True)
class WarmupAnswer(Answer):
    """Which of a job's files are resident."""

    done: Warmup

    def document(self) -> Mapping[str, Any]:
        """Return the files in JSON types."""
        return document.document(self.done)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the files as text."""
        return render.text_lines(self.done, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the files as a page."""
        return render.markdown_lines(self.done)

    def exit_code(self) -> ExitCode:
        """Return 0 if everything is resident, 1 if something is not, 3 if unknown."""
        return self.done.exit_code()
