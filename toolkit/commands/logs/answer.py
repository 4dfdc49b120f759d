"""The result of `logs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.logs import render
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.logs.answer import Answer as Diagnosis
from verl_doctor.toolkit.logs.document import document


@dataclass(frozen=True)
class LogsAnswer(Answer):
    """Why a run failed.

    `with_timeline`: the text also shows how the start spent the time; `verbose`: what the rules report, in
    full.
    """

    diagnosis: Diagnosis
    with_timeline: bool = False
    verbose: bool = False

    def document(self) -> Mapping[str, Any]:
        """Return the diagnosis in JSON types."""
        return document(self.diagnosis)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the diagnosis as text."""
        return render.text_lines(
            self.diagnosis, width, with_timeline=self.with_timeline, verbose=self.verbose
        )

    def markdown_lines(self) -> Iterable[str]:
        """Return the diagnosis as a page."""
        return render.markdown_lines(self.diagnosis)

    def exit_code(self) -> ExitCode:
        """Return 0 if nothing failed, 1 if a cause was found, 3 if none was determined."""
        return self.diagnosis.exit_code
