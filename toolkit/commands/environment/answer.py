"""The result of `environment`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.commands.environment import document, render
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode


@dataclass(frozen=True)
class EnvironmentAnswer(Answer):
    """What the workers will see of each variable. With `every` also those that are the same everywhere."""

    environment: EffectiveEnvironment
    every: bool = False

    def document(self) -> Mapping[str, Any]:
        """Return all variables in JSON types."""
        return document.document(self.environment)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the table as text."""
        return render.text_lines(self.environment, width, every=self.every)

    def markdown_lines(self) -> Iterable[str]:
        """Return the table as a page."""
        return render.markdown_lines(self.environment, every=self.every)

    def exit_code(self) -> ExitCode:
        """Return 0: the table was made."""
        return ExitCode.OK
