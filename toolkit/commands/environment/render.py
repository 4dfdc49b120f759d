"""The table of the effective environment, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from verl_doctor.toolkit.collectors.variables.effective_environment import Effective, EffectiveEnvironment
from verl_doctor.toolkit.commands.environment import document as words
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.text import counted, harmless, without_middle, wrapped

_HEAD = ("variable", "driver", "raylet", "worker", "decided by")
_STYLES = {
    "SAME": "bold green",
    "DIFFERS": "bold yellow",
    "UNKNOWN": "bold magenta",
}
_GAP = 2
_NARROWEST = 9
_WIDEST = 48  # in a pipe; JSON and Markdown show every value in full


def text_lines(environment: EffectiveEnvironment, width: int | None, *, every: bool) -> Iterator[Text]:
    """Yield the lines of the table. `width` is the terminal's, or None for a pipe."""
    word, sentence = words.headline(environment)
    first, *rest = wrapped(harmless(f"{word}  {sentence}"), width, hanging="  ")
    yield Text.assemble((word, _STYLES[word]), first.removeprefix(word))
    yield from map(Text, rest)
    for circumstance in words.circumstances(environment):
        yield from (
            Text(line) for line in wrapped(harmless(circumstance), width, indent="  ", hanging="    ")
        )
    rows = words.worth_showing(environment, every=every)
    if rows:
        yield Text()
        yield from _table(rows, environment, width)
        if legend := words.legend(rows):
            yield Text(f"  {legend}", style="dim")
    if hidden := len(environment.rows) - len(rows):
        yield Text(
            f"  {counted(hidden, 'variable')} with the same value everywhere (-v shows all)", style="dim"
        )


def markdown_lines(environment: EffectiveEnvironment, *, every: bool) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = words.headline(environment)
    yield f"## verl-doctor explain variables: {word.lower()}"
    yield ""
    yield escaped(sentence)
    yield ""
    yield from (f"* {escaped(circumstance)}" for circumstance in words.circumstances(environment))
    rows = words.worth_showing(environment, every=every)
    if rows:
        yield ""
        yield f"| {' | '.join(_HEAD)} |"
        yield "|---" * len(_HEAD) + "|"
    for row in rows:
        place = words.decided_at(row, environment)
        decides = "; ".join(filter(None, (row.decided_by, place, *words.notes(row, environment))))
        yield f"| {' | '.join(map(escaped, (*_cells(row)[:-1], decides)))} |"


def _cells(row: Effective) -> tuple[str, ...]:
    values = (row.driver, row.raylet, row.worker)
    return (row.name, *(harmless(words.cell(value)) for value in values), row.decided_by)


def _table(rows: list[Effective], environment: EffectiveEnvironment, width: int | None) -> Iterator[Text]:
    table = [_HEAD, *map(_cells, rows)]
    sizes = [max(len(line[place]) for line in table) for place in range(len(_HEAD))]
    sizes = [min(size, _WIDEST) for size in sizes] if width is None else _fitting(sizes, width - 2)
    yield Text(_line(_HEAD, sizes), style="dim")
    for row, cells in zip(rows, table[1:], strict=True):
        yield Text(_line(cells, sizes), style="bold" if row.differs else "")
        place = words.decided_at(row, environment)
        for note in filter(None, (place, *words.notes(row, environment))):
            text = harmless(note)
            indented = (
                [f"      {text}"]
                if width is None
                else wrapped(text, width, indent="      ", hanging="        ")
            )
            yield from (Text(line, style="dim") for line in indented)


def _line(cells: tuple[str, ...], sizes: list[int]) -> str:
    shown = (without_middle(cell, size).ljust(size) for cell, size in zip(cells, sizes, strict=True))
    return ("  " + (" " * _GAP).join(shown)).rstrip()


def _fitting(sizes: list[int], width: int) -> list[int]:
    """Return the widths of the columns: excess width is taken from the widest, down to a readable minimum."""
    sizes = list(sizes)
    room = width - _GAP * (len(sizes) - 1)
    while sum(sizes) > room:
        widest = max(range(len(sizes) - 1), key=lambda place: sizes[place] - (14 if place == 0 else 0))
        if sizes[widest] <= _NARROWEST:
            break
        sizes[widest] -= 1
    return sizes
