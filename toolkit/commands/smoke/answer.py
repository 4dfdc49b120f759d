"""The result of `smoke`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.commands.smoke import document, render
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.verdict import EXIT_CODES


@dataclass(frozen=True)
class SmokeAnswer(Answer):
    """How far a smoke test climbed, and the report on it."""

    run: SmokeRun
    report: Report

    def document(self) -> Mapping[str, Any]:
        """Return the climb in JSON types."""
        return document.document(self.run, self.report)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the rungs as text."""
        return render.text_lines(self.run, self.report, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the rungs as a page."""
        return render.markdown_lines(self.run, self.report)

    def exit_code(self) -> ExitCode:
        """Return 0 if all applicable rungs hold, 1 for a failure, 3 if some were not tried.

        A failure means that a rung breaks or `check` finds an error in the script.
        """
        return EXIT_CODES[document.verdict(self.run, self.report)]
