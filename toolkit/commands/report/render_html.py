"""A page as one self-contained HTML file: no network or script; dark mode, keyboard access, print layout.

The style and the frame are files in `data/report`. The page's content security policy lets a browser load
nothing and apply no style but ours.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Iterable, Iterator
from string import Template

from verl_doctor.toolkit.commands.report.page import (
    MARK_WORDS,
    Bars,
    Block,
    Card,
    Fold,
    Language,
    Listing,
    Mark,
    Page,
    PageSection,
    Paragraph,
    Points,
    StartUp,
    Table,
    Values,
)
from verl_doctor.toolkit.console import svg, svg_bars
from verl_doctor.toolkit.console.html_text import Html, element, escaped
from verl_doctor.toolkit.logs.timeline import svg as timeline_svg

_SIGNS = (("+++", ""), ("---", ""), ("+", "added"), ("-", "removed"), ("@@", "place"))


def render(page: Page) -> str:
    """Return the HTML file."""
    style = _file("page.css") + svg.page_colours()
    title = f"verl-doctor: {page.word}, {page.sentence}"
    parts = {
        "styles": " ".join(f"'{_hash(sheet)}'" for sheet in (style, svg.STYLE)),
        "style": style,
        "title": escaped(title),
        "head": "\n".join(_head(page)),
        "contents": "\n".join(_contents(page.sections)),
        "main": "\n".join(_section(number, section) for number, section in enumerate(page.sections)),
    }
    return Template(_file("page.html")).substitute(parts)


def _file(name: str) -> str:
    return (importlib.resources.files("verl_doctor.toolkit") / "data" / "report" / name).read_text("utf-8")


def _hash(style: str) -> str:
    """Return a style's hash as policies write it (https://www.w3.org/TR/CSP3/#grammardef-hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _head(page: Page) -> Iterator[Html]:
    yield element("h1", _mark(page.mark, page.word), Html(" "), escaped(page.sentence))
    for line in page.about:
        yield element("p", escaped(line), class_="quiet")


def _contents(sections: Iterable[PageSection]) -> Iterator[Html]:
    for number, section in enumerate(sections):
        yield element("li", element("a", escaped(section.title), href=f"#part-{number}"))


def _section(number: int, section: PageSection) -> Html:
    name = f"part-{number}"
    content = (_block(block, f"{name}-{place}") for place, block in enumerate(section.blocks))
    return element("section", element("h2", escaped(section.title), id=name), *content, aria_labelledby=name)


def _block(block: Block, name: str) -> Html:
    """One block. `name` is unique in the page."""
    match block:
        case Paragraph(text):
            return element("p", escaped(text))
        case Points(texts):
            return element("ul", *(element("li", escaped(text)) for text in texts))
        case Values(rows):
            pairs = ((element("dt", escaped(term)), element("dd", escaped(value))) for term, value in rows)
            return element("dl", *(html for pair in pairs for html in pair))
        case Table(head, rows):
            return _table(head, rows)
        case Listing(lines, language):
            return _listing(lines, language)
        case Bars(title, bars):
            return element("figure", Html(svg_bars.bars(name, title, bars)))
        case StartUp(timeline, _):
            return element("figure", Html(timeline_svg.picture(timeline, name)), class_="long", tabindex="0")
        case Fold(summary, blocks):
            return element("details", element("summary", escaped(summary)), *_blocks(blocks, name))
        case Card(title, blocks, mark):
            lead = (_mark(mark, MARK_WORDS[mark]), Html(" ")) if mark else ()
            kind = {"class_": mark.value} if mark else {}
            return element("article", element("h3", *lead, escaped(title)), *_blocks(blocks, name), **kind)


def _blocks(blocks: Iterable[Block], name: str) -> Iterator[Html]:
    return (_block(block, f"{name}-{place}") for place, block in enumerate(blocks))


def _mark(mark: Mark, word: str) -> Html:
    return element("span", escaped(word), class_=f"mark {mark.value}")


def _table(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Html:
    """Return a table whose cells are labelled when a narrow screen stacks them."""
    top = element("thead", element("tr", *(element("th", escaped(cell), scope="col") for cell in head)))
    body = (
        element(
            "tr",
            *(element("td", escaped(cell), data_head=name) for name, cell in zip(head, row, strict=True)),
        )
        for row in rows
    )
    return element("table", top, element("tbody", *body))


def _listing(lines: tuple[str, ...], language: Language) -> Html:
    """Return lines that scroll sideways if they are too long, also with the keyboard."""
    content = map(_of_diff, lines) if language is Language.DIFF else map(escaped, lines)
    return element("pre", Html("\n".join(content)), tabindex="0")


def _of_diff(line: str) -> Html:
    kind = next((kind for sign, kind in _SIGNS if line.startswith(sign)), "")
    return element("span", escaped(line), class_=kind) if kind else escaped(line)
