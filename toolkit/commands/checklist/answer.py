"""The result of `checklist`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.checklist import checklist
from verl_doctor.toolkit.commands.checklist.checklist import Checklist
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode


@dataclass(frozen=True)
class ChecklistAnswer(Answer):
    """The steps of a move, each with its state."""

    checklist: Checklist

    def document(self) -> Mapping[str, Any]:
        """Return the steps in JSON types."""
        return checklist.document(self.checklist)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the steps as text."""
        return checklist.text_lines(self.checklist, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the steps as a task list."""
        return checklist.markdown_lines(self.checklist)

    def exit_code(self) -> ExitCode:
        """Return 0 if all steps are done, 1 if one failed or is open, 3 if one could not be judged."""
        return checklist.exit_code(self.checklist.steps, self.checklist.report.unexamined)
