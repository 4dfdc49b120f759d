"""Pictures: well-formed for any text, with titles, and without active content."""

from __future__ import annotations

import random
from xml.etree import ElementTree as ET

import pytest

from verl_doctor.toolkit.console import svg
from verl_doctor.toolkit.console.svg_bars import Bar, bars

_SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title><script>alert(1)</script>\"' onload=x \x00\x1b[31m\u202e\ud800 & ]]> <!--"


def _drawn(words: str) -> ET.Element:
    content = (
        svg.rect(0, 0, 10.5, 4, 1, words),
        svg.rect(1, 1, 1, 1, 2, is_open=True),
        svg.line(0, 0, 10, 10, is_faint=True),
        svg.text(1, 2, words, anchor="end"),
        svg.group([svg.text(0, 0, "inside")], words),
    )
    return ET.fromstring(svg.picture(10, 20, "p1", words, words, content))


@pytest.mark.parametrize("words", ["plain", HOSTILE, *(
    "".join(chr(random.Random(seed).randrange(0x11000)) for _ in range(3)) * 5 for seed in range(20)
)])  # fmt: skip
def test_any_message_remains_plain_text(words: str) -> None:
    root = _drawn(words)
    names = {element.tag.removeprefix(_SVG) for element in root.iter()}
    assert names == {"svg", "title", "desc", "style", "rect", "line", "text", "g"}
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on")]


def test_picture_has_a_text_description() -> None:
    root = _drawn("where the time went")
    assert root.get("role") == "img"
    known = {element.get("id"): element.text for element in root.iter() if element.get("id")}
    assert [known[name] for name in (root.get("aria-labelledby") or "").split()] == [
        "where the time went"
    ] * 2


def test_colours_follow_the_page() -> None:
    drawn = svg.picture(1, 1, "p", "t", "w", [svg.rect(0, 0, 1, 1, 3), svg.text(0, 0, "x")])
    assert "currentColor" in drawn
    assert "--vd-3" in drawn
    assert "prefers-color-scheme:dark" in drawn
    assert "url(" not in drawn


def test_bar_lengths_are_proportional_to_values() -> None:
    drawn = ET.fromstring(bars("load", "How long", [Bar("cold", 420), Bar("warm", 4.2, 3)]))
    boxes = [float(element.get("width") or 0) for element in drawn.iter(f"{_SVG}rect")]
    assert boxes[0] == pytest.approx(100 * boxes[1], rel=0.01)
    texts = [element.text for element in drawn.iter(f"{_SVG}text")]
    assert texts == ["How long", "cold", "7 minutes", "warm", "4.2 s"]
    ET.fromstring(bars("none", "Nothing", []))
