"""A page as Markdown for a GitHub issue, within the length limit.

If space is short, the lowest ranks are cut first, with a note on how to get the full page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from verl_doctor.toolkit.commands.report.page import (
    MARK_WORDS,
    Bars,
    Block,
    Card,
    Fold,
    Listing,
    Page,
    PageSection,
    Paragraph,
    Points,
    StartUp,
    Table,
    Values,
)
from verl_doctor.toolkit.console.markdown_text import escaped, fenced, in_html, paragraph
from verl_doctor.toolkit.console.svg_bars import seconds_text
from verl_doctor.toolkit.text import counted

T = TypeVar("T")

MARKER = "<!-- verl-doctor report -->"
LIMIT = 62_000
"""Characters. GitHub accepts 65,536, and the author needs some for a description."""

_NOTE = 160  # upper limit for the length of the note about cuts
_ELSEWHERE = "verl-doctor report --html FILE"


def render(page: Page, limit: int = LIMIT) -> Iterator[str]:
    """Yield the lines."""
    head = list(_head(page))
    room = limit - _length(head)
    shown: dict[int, list[str]] = {}
    for number, section in sorted(enumerate(page.sections), key=lambda pair: pair[1].rank.value):
        shown[number] = list(_section(section, room))
        room -= _length(shown[number])
    yield from head
    for number in range(len(page.sections)):
        yield from shown[number]


def _head(page: Page) -> Iterator[str]:
    yield MARKER
    yield f"## verl-doctor: {escaped(page.word)}, {escaped(page.sentence)}"
    for line in page.about:
        yield ""
        yield paragraph(line)


def _section(section: PageSection, room: int) -> Iterator[str]:
    head = ["", f"### {escaped(section.title)}"]
    left = room - _length(head) - _NOTE
    if left < 0:
        return
    yield from head
    lost = 0
    for block in section.blocks:
        lines = list(_lines(block))
        if _length(lines) > left:
            whole = len(lines)
            kept = _cut(block, left)
            lines = [] if kept is None else list(_lines(kept))
            lost += whole - len(lines)
        left -= _length(lines)
        yield from lines
    if lost:
        yield ""
        yield f"*{counted(lost, 'line')} omitted to fit into an issue. Full report:* `{_ELSEWHERE}`"


def _lines(block: Block) -> Iterator[str]:
    yield ""
    match block:
        case Paragraph(text):
            yield paragraph(text)
        case Points(texts):
            yield from (f"* {paragraph(text)}" for text in texts)
        case Values(rows):
            yield from (f"* {paragraph(name)}: {escaped(value)}" for name, value in rows)
        case Table(head, rows):
            yield from _table((head, *rows))
        case Listing(lines, language):
            yield from fenced("\n".join(lines), language.value)
        case Bars(title, bars):
            yield from _table((("", title), *((bar.label, seconds_text(bar.seconds)) for bar in bars)))
        case StartUp(_, chart):
            yield from fenced("\n".join(chart))
        case Fold(summary, blocks):
            yield f"<details><summary>{in_html(summary)}</summary>"
            for inner in blocks:
                yield from _lines(inner)
            yield ""
            yield "</details>"
        case Card(title, blocks, mark):
            yield f"#### {f'{MARK_WORDS[mark]}, ' if mark else ''}{escaped(title)}"
            for inner in blocks:
                yield from _lines(inner)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *others = rows
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, others)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def _cut(block: Block, room: int) -> Block | None:
    """Return as much of a block as fits, None if nothing does."""
    match block:
        case Table(_, rows):
            empty = replace(block, rows=())
            kept = _first(rows, lambda row: len(_row(row)) + 2, room - _length(_lines(empty)))
            return replace(block, rows=kept) if kept else None
        case Listing(lines, _):
            fences = _length(_lines(replace(block, lines=()))) + len("``````")
            kept_lines = _first(lines, lambda line: 2 * len(line) + 2, room - fences)
            return replace(block, lines=kept_lines) if kept_lines else None
        case Points(texts):
            kept_texts = _first(texts, lambda text: _length(_lines(Points((text,)))), room)
            return Points(kept_texts) if kept_texts else None
        case Values(rows):
            kept_rows = _first(rows, lambda row: _length(_lines(Values((row,)))), room)
            return Values(kept_rows) if kept_rows else None
        case Fold(_, blocks) | Card(_, blocks, _):
            left = room - _length(_lines(replace(block, blocks=())))
            inner = tuple(_cut_all(blocks, left))
            return replace(block, blocks=inner) if inner else None
    return None


def _cut_all(blocks: Iterable[Block], room: int) -> Iterator[Block]:
    for block in blocks:
        size = _length(_lines(block))
        kept = block if size <= room else _cut(block, room)
        if kept is not None:
            room -= _length(_lines(kept))
            yield kept


def _first(items: Sequence[T], size: Callable[[T], int], room: int) -> tuple[T, ...]:
    """Return as many of the first items as fit."""
    for number, item in enumerate(items):
        room -= size(item)
        if room < 0:
            return tuple(items[:number])
    return tuple(items)


def _length(lines: Iterable[str]) -> int:
    """Characters as a browser form sends them, with two per line end."""
    return sum(len(line) + 2 for line in lines)
