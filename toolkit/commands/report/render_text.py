"""A page for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from verl_doctor.toolkit.commands.report.page import (
    MARK_WORDS,
    Bars,
    Block,
    Card,
    Fold,
    Listing,
    Mark,
    Page,
    Paragraph,
    Points,
    StartUp,
    Table,
    Values,
)
from verl_doctor.toolkit.console.svg_bars import seconds_text
from verl_doctor.toolkit.text import harmless, wrapped

_STYLES = {
    Mark.BAD: "bold red",
    Mark.BROKEN: "bold magenta",
    Mark.DOUBTFUL: "bold yellow",
    Mark.HINT: "cyan",
    Mark.GOOD: "bold green",
}
_CELL = 24  # columns to which short cells are filled


def render(page: Page, width: int | None) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe."""
    word = harmless(page.word)
    first, *more = wrapped(f"{word}  {harmless(page.sentence)}", width, hanging="  ")
    yield Text.assemble((word, _STYLES[page.mark]), first.removeprefix(word))
    yield from map(Text, more)
    for section in page.sections:
        yield Text()
        yield Text(harmless(section.title), style="bold")
        for block in section.blocks:
            yield from _lines(block, width, "  ")
    yield Text()
    for line in page.about:
        yield from (Text(part, style="dim") for part in wrapped(harmless(line), width))


def _lines(block: Block, width: int | None, indent: str) -> Iterator[Text]:
    match block:
        case Paragraph(text):
            yield from _wrapped(text, width, indent)
        case Points(texts):
            for text in texts:
                yield from _wrapped(text, width, indent)
        case Values(rows) | Table(_, rows):
            for row in rows:
                yield from _wrapped("  ".join(f"{cell:<{_CELL}}" for cell in row).rstrip(), width, indent)
        case Listing(lines, _) | StartUp(_, lines):
            yield from (Text(indent + harmless(line, keep="\t")) for line in lines)
        case Bars(title, bars):
            yield from _wrapped(title, width, indent)
            for bar in bars:
                yield from _wrapped(f"{bar.label}: {seconds_text(bar.seconds)}", width, indent + "  ")
        case Fold(summary, blocks):
            yield from _wrapped(summary, width, indent)
            for inner in blocks:
                yield from _lines(inner, width, indent + "  ")
        case Card(title, blocks, mark):
            yield Text()
            lead = f"{MARK_WORDS[mark]}  " if mark else ""
            first, *more = _wrapped(lead + title, width, indent)
            if mark:
                first.stylize(_STYLES[mark], len(indent), len(indent) + len(lead))
            yield from (first, *more)
            for inner in blocks:
                yield from _lines(inner, width, indent + "  ")


def _wrapped(text: str, width: int | None, indent: str) -> Iterator[Text]:
    return map(Text, wrapped(harmless(text), width, indent=indent, hanging=indent + "  "))
