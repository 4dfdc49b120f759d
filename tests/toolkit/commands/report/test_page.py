"""A page as Markdown, HTML and plain text: foreign text is shown and never interpreted."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token
from support.hostile_pages import TEXTS, TRICKS, Elements, page_with
from support.trying import cases

from verl_doctor.toolkit.commands.report import render_html, render_markdown, render_text
from verl_doctor.toolkit.commands.report.page import (
    Card,
    Fold,
    Listing,
    Mark,
    Page,
    PageSection,
    Paragraph,
    Rank,
    Table,
    mapped,
)
from verl_doctor.toolkit.text import harmless

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LIVE = re.compile(r"@\w|#\d|\bGH-\d|://|www\.\w", re.IGNORECASE)


def markdown(page: Page, limit: int = render_markdown.LIMIT) -> str:
    return "\n".join(render_markdown.render(page, limit)) + "\n"


def shape(tokens: list[Token]) -> list[tuple[str, str]]:
    """Block structure, and inline markup except text and code."""
    found = []
    for token in tokens:
        found.append((token.type, token.tag))
        words = [child.type for child in token.children or ()]
        found += [(word, "") for word in words if word not in {"text", "text_special", "code_inline"}]
    return found


PLAIN_SHAPE = shape(MARKDOWN.parse(markdown(page_with("x"))))
PLAIN_ELEMENTS = Elements(render_html.render(page_with("x"))).elements


def prose(tokens: list[Token]) -> str:
    """Text of the page outside code."""
    blocks = [
        token.children for token in tokens if token.children
    ]  # a cell does not run on into the next one
    return "\n".join(
        "".join(" " if child.type == "code_inline" else child.content for child in block) for block in blocks
    )


@pytest.mark.slow
@settings(max_examples=cases(20), deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_text_never_changes_the_markdown_structure(a: str, b: str, c: str) -> None:
    tokens = MARKDOWN.parse(markdown(page_with(a, b, c)))
    assert shape(tokens) == PLAIN_SHAPE
    assert not LIVE.search(prose(tokens))
    for token in tokens:
        if token.type == "html_block":
            said = Elements(token.content)
            assert {element[0] for element in said.elements} <= {"details", "summary", "/summary", "/details"}
            assert {element[1:] for element in said.elements} <= {()}
            assert not LIVE.search("".join(said.said))


@pytest.mark.slow
@settings(max_examples=cases(20), deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_text_never_changes_the_html_structure(a: str, b: str, c: str) -> None:
    made = Elements(render_html.render(page_with(a, b, c)))
    assert [element for element in made.elements if "span" not in element[0]] == [
        element for element in PLAIN_ELEMENTS if "span" not in element[0]
    ]
    assert made.comments == []
    assert harmless(a, keep="\t\n") in "".join(made.said)


@pytest.mark.parametrize("said", TRICKS)
def test_terminal_receives_no_control_characters(said: str) -> None:
    lines = [line.plain for line in render_text.render(page_with(said), 80)]
    assert not [line for line in lines if re.search(r"[\x00-\x08\x0b-\x1f\x7f\x9b\u202e\ud800]", line)]


def test_policy_allows_only_our_own_styles() -> None:
    text = render_html.render(page_with("x"))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(part.strip().split(" ", 1) for part in policy[1].replace("&#x27;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "img-src", "style-src", "base-uri", "form-action"}
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" for style in styles
    }
    assert hashes == set(rules["style-src"].split())
    assert "<script" not in text
    assert not re.search(r"""(?:src|href)="(?!data:,|#)""", text)


def long_page() -> Page:
    many = tuple((f"name {number}", "value " * 10) for number in range(2000))
    cards = tuple(Card(f"finding {number}", (Paragraph("because " * 20),), Mark.BAD) for number in range(400))
    return Page(
        "FAIL",
        Mark.BAD,
        "much",
        (
            PageSection("Top", (Paragraph("first"),), Rank.VERDICT),
            PageSection("Long", (Fold("rows", (Table(("a", "b"), many),)),)),
            PageSection("Lines", (Listing(tuple("`" * 3 + "x" * 100 for _ in range(2000))),), Rank.REPAIRS),
            PageSection("Cards", cards, Rank.FINDINGS),
            PageSection("End", (Paragraph("last"),), Rank.VERDICT),
        ),
    )


def test_overlong_page_drops_its_lowest_ranks_with_a_note() -> None:
    text = markdown(long_page())
    assert len(text.replace("\n", "\r\n")) <= 65_536
    assert len(text) > 50_000
    assert text.index("first") < text.index("### Cards") < text.index("last")
    assert "finding 0" in text
    assert "finding 399" not in text
    assert re.search(r"\d[\d,]* lines omitted", text)
    assert "verl-doctor report --html FILE" in text


@pytest.mark.parametrize("limit", [0, 300, 1600, 6400])
def test_truncated_page_is_valid_markdown(limit: int) -> None:
    page = mapped(long_page(), lambda text: text.replace("value", "`` <b> |"))
    text = markdown(page, limit)
    assert len(text.replace("\n", "\r\n")) <= max(limit, 300)
    kinds = [token.type for token in MARKDOWN.parse(text)]
    assert kinds.count("fence") == text.count("\n````") // 2
    assert text.count("<details>") == text.count("</details>")


def test_page_within_the_limit_is_not_truncated() -> None:
    page = replace(long_page(), sections=long_page().sections[:1])
    assert "left out" not in markdown(page)


def test_text_fits_the_terminal() -> None:
    page = mapped(page_with("x"), lambda _: "words and words " * 12)
    assert max(len(line.plain) for line in render_text.render(page, 80) if "\t" not in line.plain) < 300
    listed = render_text.render(Page("OK", Mark.GOOD, "fine " * 40, ()), 80)
    assert max(len(line.plain) for line in listed) <= 80
