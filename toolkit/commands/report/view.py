"""A report as shown: masked unless the user requested everything, and always without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from rich.text import Text

from verl_doctor.toolkit.commands.report import render_markdown, render_text
from verl_doctor.toolkit.commands.report.names import names_in
from verl_doctor.toolkit.commands.report.page import Page, Paragraph, StartUp, mapped, texts_in
from verl_doctor.toolkit.commands.report.pseudonyms import Masks
from verl_doctor.toolkit.commands.report.report import page_of
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.comparison import document as compare_document
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.console.masked import mask_of
from verl_doctor.toolkit.logs import document as logs_document
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render import document as report_document
from verl_doctor.toolkit.verdict import Verdict

_PARAGRAPH = "said"  # the kind of a paragraph in the documents of 0.1


class ParagraphDocument(TypedDict):
    """One or two sentences."""

    kind: Literal["said"]
    text: str


class PointsDocument(TypedDict):
    """A list of items."""

    kind: Literal["points"]
    texts: list[str]


class ValuesDocument(TypedDict):
    """Names with their values."""

    kind: Literal["values"]
    rows: list[list[str]]


class TableDocument(TypedDict):
    """Rows of cells below a header."""

    kind: Literal["table"]
    head: list[str]
    rows: list[list[str]]


class ListingDocument(TypedDict):
    """Preformatted lines."""

    kind: Literal["listing"]
    lines: list[str]
    language: Literal["", "diff", "sh"]


class BarDocument(TypedDict):
    """A duration."""

    kind: Literal["bar"]
    label: str
    seconds: float
    colour: int


class BarsDocument(TypedDict):
    """Durations to compare."""

    kind: Literal["bars"]
    title: str
    bars: list[BarDocument]


class StartUpDocument(TypedDict):
    """The timeline of a start as a text chart; `log` holds its data."""

    kind: Literal["startup"]
    chart: list[str]


class FoldDocument(TypedDict):
    """A folded part."""

    kind: Literal["fold"]
    summary: str
    blocks: list[BlockDocument]


class CardDocument(TypedDict):
    """An item with its own heading."""

    kind: Literal["card"]
    title: str
    blocks: list[BlockDocument]
    mark: Literal["bad", "broken", "doubtful", "hint", "good"] | None


BlockDocument: TypeAlias = (
    ParagraphDocument
    | PointsDocument
    | ValuesDocument
    | TableDocument
    | ListingDocument
    | BarsDocument
    | StartUpDocument
    | FoldDocument
    | CardDocument
)


class SectionDocument(TypedDict):
    """A section of the page."""

    title: str
    blocks: list[BlockDocument]


class PageDocument(TypedDict):
    """A report to paste into an issue."""

    schema_version: Literal[1]
    verdict: Verdict
    target: Annotated[dict[str, Any], "what was examined"]
    masked: Annotated[bool, "whether users, hosts and addresses are replaced by pseudonyms"]
    verl_doctor: Annotated[str, "the version that made this"]
    taken: Annotated[str, "UTC in ISO 8601"]
    check: Annotated[dict[str, Any], "the document of verl-doctor fix: schema report"]
    log: Annotated[dict[str, Any] | None, "with --log: the document of verl-doctor logs, schema logs"]
    compared: Annotated[
        dict[str, Any] | None, "with --from: the document of verl-doctor compare, schema compare"
    ]
    page: list[SectionDocument]


def document(seen: Seen, page: Page, *, masked: bool) -> PageDocument:
    """Return everything in JSON types.

    The texts of `page` are already masked if required, those of `seen` are not.
    """
    check = report_document.document(seen.report)
    return {
        "schema_version": 1,
        "verdict": check["verdict"],
        "target": dict(check["target"]),
        "masked": masked,
        "verl_doctor": seen.version,
        "taken": seen.taken,
        "check": dict(check),
        "log": None if seen.log is None else dict(logs_document.document(seen.log)),
        "compared": None if seen.compared is None else dict(compare_document.document(seen.compared)),
        "page": [
            {"title": section.title, "blocks": [_block(block) for block in section.blocks]}
            for section in page.sections
        ],
    }


def _block(block: Any) -> Any:
    if isinstance(block, StartUp):  # all of it is in `log`
        return {"kind": "startup", "chart": list(block.chart)}
    return {
        "kind": _PARAGRAPH if isinstance(block, Paragraph) else type(block).__name__.lower(),
        **{field.name: _value(getattr(block, field.name)) for field in fields(block)},
    }


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_value(inner) for inner in value]
    if hasattr(value, "__dataclass_fields__"):
        return _block(value)
    return value


@dataclass(frozen=True)
class PageAnswer(Answer):
    """The page and its data, ready to be shown."""

    page: Page
    everything: Mapping[str, Any]
    code: int = 0

    def document(self) -> Mapping[str, Any]:
        """Return everything in JSON types."""
        return self.everything

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the page for a terminal."""
        return render_text.render(self.page, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the page for a ticket."""
        return render_markdown.render(self.page)

    def exit_code(self) -> int:
        """Return the report's exit code."""
        return self.code


def make(seen: Seen, machine: Machine, *, masked: bool) -> PageAnswer:
    """Compose the page and mask it."""
    plain = page_of(seen, masked=masked)
    hide = mask_of(os.environ).text  # --html writes the page by itself
    names = Masks(names_in(seen, machine, texts_in(plain))) if masked else None

    def change(text: str) -> str:
        return hide(text) if names is None else names(hide(text))

    page = mapped(plain, change)
    return PageAnswer(page, mapped(document(seen, page, masked=masked), change), seen.report.exit_code())
