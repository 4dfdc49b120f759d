"""What will run out first, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from verl_doctor.toolkit.commands.watch import document as words
from verl_doctor.toolkit.commands.watch.forecast import Forecast
from verl_doctor.toolkit.console.lines import next_steps
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.text import harmless, in_time, wrapped

_STYLES = {"OK": "bold green", "FAIL": "bold red", "UNKNOWN": "bold magenta", "TOO SHORT": "bold magenta"}
_LINE = 79


def line(clock: str, forecasts: Sequence[Forecast]) -> str:
    """One sample in one line: the most urgent resources first, as many as fit."""
    text = f"{clock} "
    for forecast in forecasts:
        growth = words.change(forecast)
        end = f", {in_time(forecast.left)} left" if forecast.left else ""
        more = (
            f" {harmless(forecast.gauge.name)} "
            f"{words.part(forecast.gauge)}{' ' + growth if growth else ''}{end} "
        )
        if len(text) + len(more) > _LINE:
            break
        text += more
    return text.rstrip()


def text_lines(forecasts: Sequence[Forecast], within: float, width: int | None) -> Iterator[Text]:
    """Yield the lines of the summary. `width` is the terminal's, or None for a pipe."""
    word, sentence = words.headline(forecasts, within)
    first, *rest = wrapped(harmless(f"{word}  {sentence}"), width, hanging="  ")
    yield Text.assemble((word, _STYLES[word]), first.removeprefix(word))
    yield from map(Text, rest)
    for forecast in forecasts:
        text = f"{words.part(forecast.gauge):>4}  {forecast.gauge.name}: {words.amounts(forecast.gauge)}"
        if growth := words.change(forecast):
            text += f", {growth}"
        if forecast.left:
            text += f"; {forecast.gauge.then} in about {in_time(forecast.left)}"
        yield from map(Text, wrapped(harmless(text), width, hanging="      "))
    if words.ending(forecasts, within):
        yield from next_steps([("verl-doctor clean", "what dead jobs left behind")], width)


def markdown_lines(forecasts: Sequence[Forecast], within: float) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = words.headline(forecasts, within)
    yield f"## verl-doctor watch: {word.lower()}"
    yield ""
    yield escaped(harmless(sentence))
    yield ""
    yield "| what | taken | change | left | then |"
    yield "|---|---|---|---|---|"
    for forecast in forecasts:
        left = "" if forecast.left is None else in_time(forecast.left)
        cells = (
            forecast.gauge.name,
            words.amounts(forecast.gauge),
            words.change(forecast),
            left,
            forecast.gauge.then,
        )
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in cells)} |"
