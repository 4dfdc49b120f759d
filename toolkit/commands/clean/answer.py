"""The result of `clean`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.clean import document, render
from verl_doctor.toolkit.commands.clean.clean import Cleaned
from verl_doctor.toolkit.console.answer import Answer


@dataclass(frozen=True)
class CleanAnswer(Answer):
    """What dead jobs left behind, and what was done about it. `verbose`: the text also lists what is kept."""

    cleaned: Cleaned
    verbose: bool = False

    def document(self) -> Mapping[str, Any]:
        """Return the leftovers in JSON types."""
        return document.document(self.cleaned)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the leftovers as text."""
        return render.text_lines(self.cleaned, width, verbose=self.verbose)

    def markdown_lines(self) -> Iterable[str]:
        """Return the leftovers as a page."""
        return render.markdown_lines(self.cleaned)

    def exit_code(self) -> int:
        """Return 0 if nothing is left over, 1 if something is, 3 if the examination was incomplete.

        It is incomplete if not everything could be examined. If a job was run, return the job's code.
        """
        return self.cleaned.exit_code()
