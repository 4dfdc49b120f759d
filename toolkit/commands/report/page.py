"""A page as data: the content of a report before it becomes Markdown, HTML or text, without markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from verl_doctor.toolkit.console.svg_bars import Bar
from verl_doctor.toolkit.logs.timeline.timeline import Timeline

T = TypeVar("T")


class Mark(Enum):
    """The severity of a finding."""

    BAD = "bad"
    BROKEN = "broken"
    DOUBTFUL = "doubtful"
    HINT = "hint"
    GOOD = "good"


MARK_WORDS = {
    Mark.BAD: "error",
    Mark.BROKEN: "not determined",
    Mark.DOUBTFUL: "warning",
    Mark.HINT: "hint",
    Mark.GOOD: "good",
}


class Language(Enum):
    """The language of the lines in a listing."""

    PLAIN = ""
    DIFF = "diff"
    SHELL = "sh"


class Rank(Enum):
    """The priority of a section if space is short; the smallest number is kept longest."""

    VERDICT = 0
    FINDINGS = 1
    SYSTEM = 2
    REPAIRS = 3
    DETAILS = 4


@dataclass(frozen=True)
class Paragraph:
    """One or two sentences."""

    text: str


@dataclass(frozen=True)
class Points:
    """A list of items."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Values:
    """Names with their values, shown as read."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells below a header."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Listing:
    """Preformatted lines: of a log, of a diff, commands."""

    lines: tuple[str, ...]
    language: Language = Language.PLAIN


@dataclass(frozen=True)
class Bars:
    """Durations to compare, as a picture where possible."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class StartUp:
    """The timeline of a start, also as a text chart where a picture is impossible."""

    timeline: Timeline
    chart: tuple[str, ...]


@dataclass(frozen=True)
class Fold:
    """A folded part."""

    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Card:
    """An item with its own heading."""

    title: str
    blocks: tuple[Block, ...]
    mark: Mark | None = None


Block = Paragraph | Points | Values | Table | Listing | Bars | StartUp | Fold | Card


@dataclass(frozen=True)
class PageSection:
    """A part of the page."""

    title: str
    blocks: tuple[Block, ...]
    rank: Rank = Rank.DETAILS


@dataclass(frozen=True)
class Page:
    """The whole page.

    `word` is the verdict in a word or two, `sentence` its explanation, `about` what made the page and when.
    """

    word: str
    mark: Mark
    sentence: str
    sections: tuple[PageSection, ...]
    about: tuple[str, ...] = ()


def mapped(value: T, change: Callable[[str], str]) -> T:
    """Return the same value with each text in it changed, also in mapping keys and dataclass fields."""
    return _mapped(value, change)  # type: ignore[no-any-return]


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(name, change): _mapped(inner, change) for name, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(inner, change) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: _mapped(getattr(value, field.name), change) for field in fields(value)}
        )
    return value


def texts_in(value: Any) -> Iterator[str]:
    """Return all texts in a value, as `mapped` finds them."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    mapped(value, note)
    return iter(found)
