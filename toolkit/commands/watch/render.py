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
    """One look in one line: the most urgent things first, as many as find room."""
    said = f"{clock} "
    for one in forecasts:
        growth = words.change(one)
        end = f", {in_time(one.left)} left" if one.left else ""
        more = f" {harmless(one.gauge.name)} {words.part(one.gauge)}{' ' + growth if growth else ''}{end} "
        if len(said) + len(more) > _LINE:
            break
        said += more
    return said.rstrip()


def text_lines(forecasts: Sequence[Forecast], within: float, width: int | None) -> Iterator[Text]:
    """Yield the lines of the summary. `width` is the terminal's, or None for a pipe."""
    word, sentence = words.headline(forecasts, within)
    first, *rest = wrapped(harmless(f"{word}  {sentence}"), width, hanging="  ")
    yield Text.assemble((word, _STYLES[word]), first.removeprefix(word))
    yield from map(Text, rest)
    for one in forecasts:
        said = f"{words.part(one.gauge):>4}  {one.gauge.name}: {words.amounts(one.gauge)}"
        if growth := words.change(one):
            said += f", {growth}"
        if one.left:
            said += f"; {one.gauge.then} in about {in_time(one.left)}"
        yield from map(Text, wrapped(harmless(said), width, hanging="      "))
    if words.ending(forecasts, within):
        yield from next_steps([("verl-doctor clean", "what dead jobs have left behind")], width)


def markdown_lines(forecasts: Sequence[Forecast], within: float) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = words.headline(forecasts, within)
    yield f"## verl-doctor watch: {word.lower()}"
    yield ""
    yield escaped(harmless(sentence))
    yield ""
    yield "| what | taken | change | left | then |"
    yield "|---|---|---|---|---|"
    for one in forecasts:
        left = "" if one.left is None else in_time(one.left)
        cells = (one.gauge.name, words.amounts(one.gauge), words.change(one), left, one.gauge.then)
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in cells)} |"
