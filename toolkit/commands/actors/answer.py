"""The result of `actors`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.actors import document, render
from verl_doctor.toolkit.commands.actors.placement import Placement
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode


@dataclass(frozen=True)
class ActorsAnswer(Answer):
    """Which actors run on which GPU. With `every` also finished ones, and every node."""

    found: Placement
    every: bool = False

    def document(self) -> Mapping[str, Any]:
        """Return the placement in JSON types."""
        return document.document(self.found)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the table as text."""
        return render.text_lines(self.found, width, every=self.every)

    def markdown_lines(self) -> Iterable[str]:
        """Return the table as a page."""
        return render.markdown_lines(self.found, every=self.every)

    def exit_code(self) -> ExitCode:
        """Return 0, or 3 if Ray could not be read."""
        return (
            ExitCode.COULD_NOT_CHECK if document.headline(self.found)[0] == document.UNKNOWN else ExitCode.OK
        )
