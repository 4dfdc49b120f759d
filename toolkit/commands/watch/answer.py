"""The result of `watch`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.watch import document, render
from verl_doctor.toolkit.commands.watch.forecast import Forecast
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.verdict import EXIT_CODES


@dataclass(frozen=True)
class WatchAnswer(Answer):
    """What runs out first, from `looks` samples in `seconds`.

    What runs out `within` that many seconds is a failure.
    """

    forecasts: Sequence[Forecast]
    looks: int
    seconds: float
    within: float

    def document(self) -> Mapping[str, Any]:
        """Return the forecasts in JSON types."""
        return document.document(self.forecasts, looks=self.looks, seconds=self.seconds, within=self.within)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the forecasts as text."""
        return render.text_lines(self.forecasts, self.within, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the forecasts as a page."""
        return render.markdown_lines(self.forecasts, self.within)

    def exit_code(self) -> ExitCode:
        """Return 0 if nothing runs out, 1 if something does, 3 if samples are too few for a forecast."""
        return EXIT_CODES[document.verdict(self.forecasts, self.within)]
