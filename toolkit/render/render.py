"""A report as an answer: the forms of every answer, and machine-readable ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.console.masked import masked
from verl_doctor.toolkit.render import markdown, text
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Check


@dataclass(frozen=True)
class ReportAnswer(Answer):
    """A report in all of `formats.FORMATS`.

    `rules` are the available rules, and `code` is the command's exit code: SARIF holds both.
    """

    report: Report
    code: int = 0
    verbose: bool = False
    rules: Iterable[Check] = ()

    @cached_property
    def shown(self) -> Report:
        """The report with its secrets masked."""
        return masked(self.report)

    def document(self) -> Mapping[str, Any]:
        """Return the report in JSON types."""
        from verl_doctor.toolkit.render.document import document  # noqa: PLC0415 - few runs need it

        return document(self.report)

    def text_lines(self, width: int | None) -> Iterable[Text | str]:
        """Return the verdict, what to do next, and the evidence."""
        return text.render(self.shown, verbose=self.verbose, width=width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the same as a page."""
        return markdown.render(self.shown)

    def exit_code(self) -> int:
        """Return the command's exit code."""
        return self.code

    def ends_with_verdict(self) -> bool:
        """Whether the text ends with the verdict: a check's totals include it, a repair's plan does not."""
        return self.report.repairs is None

    def other_forms(self) -> Mapping[str, Callable[[], str]]:
        """Return the machine-readable forms."""
        return {"junit": self._junit, "sarif": self._sarif, "github": self._github}

    def _junit(self) -> str:
        from verl_doctor.toolkit.render import junit  # noqa: PLC0415 - the XML library is slow to load

        return junit.render(self.shown)

    def _sarif(self) -> str:
        from verl_doctor.toolkit.render import sarif  # noqa: PLC0415 - few runs need it

        return sarif.render(self.report, self.rules, Path.cwd(), self.code)

    def _github(self) -> str:
        from verl_doctor.toolkit.render import github  # noqa: PLC0415 - see above

        return "".join(f"{line}\n" for line in github.render(self.shown, Path.cwd()))
