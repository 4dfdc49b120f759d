"""The page in a real browser: nothing is fetched, nothing is out of reach of the keyboard, all can be read, also on paper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.browser.browser import Tab, browsing
from support.browser.here import command
from support.hostile_pages import TRICKS, page_with
from support.report_seen import seen

from verl_doctor.toolkit.commands.report import render_html, view
from verl_doctor.toolkit.machine import Machine

pytestmark = pytest.mark.slow

_LONG = (
    " /a/path/that/has/no/place/to/break/it/anywhere_because_it_is_one_word_of_many_letters_and_goes_on/x.py"
)
# The contrast of two colours by WCAG 2.2, for all visible text on its background.
_CONTRASTS = """
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data };
  const light = colour => [0.2126, 0.7152, 0.0722].reduce((sum, part, at) => { const c = rgba(colour)[at] / 255;
    return sum + part * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4) }, 0);
  const behind = one => { for (; one; one = one.parentElement) { const colour = getComputedStyle(one).backgroundColor;
    if (rgba(colour)[3] == 255) return colour } return 'white' };
  const found = {};
  document.querySelectorAll('details').forEach(one => one.open = true);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const one = node.parentElement;
    if (!node.textContent.trim() || one.closest('svg') || !one.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = one.tagName + '.' + one.className;
    found[name] = Math.min(found[name] ?? 99, contrast);
  }
  return found;
})()
"""
_FOCUSED = (
    "(() => { const one = document.activeElement; return [one.tagName, one.getAttribute('href') ?? one.id ?? '', \
one == document.body ? '' : getComputedStyle(one).outlineStyle] })()"
)
_WIDE = "[document.documentElement.scrollWidth, innerWidth]"


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browsing(command()) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = view.make(seen(_LONG, "node[001-100]"), Machine(environ={}), masked=True)
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(render_html.render(made.page), "utf-8")
    return file


@pytest.fixture
def shown(tab: Tab, page: Path) -> Tab:
    tab.media()
    tab.size(1200)
    tab.open(page)
    return tab


def complaints(tab: Tab) -> list[object]:
    return [
        *tab.told(
            "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Audits.issueAdded"
        )
    ]


def test_page_fetches_nothing_and_logs_no_errors(shown: Tab, page: Path) -> None:
    requested = [event["request"]["url"] for event in shown.told("Network.requestWillBeSent")]
    assert {url for url in requested if not url.startswith("data:")} == {page.as_uri()}
    assert complaints(shown) == []


def test_hostile_content_has_no_effect(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(
        render_html.render(page_with(" ".join(TRICKS).replace("\ud800", ""), *TRICKS[:2])), "utf-8"
    )
    tab.open(file)
    requested = [event["request"]["url"] for event in tab.told("Network.requestWillBeSent")]
    assert {url for url in requested if not url.startswith("data:")} == {file.as_uri()}
    assert complaints(tab) == []
    assert tab.told("Page.javascriptDialogOpening") == []
    assert tab.run("document.querySelectorAll('script, img, iframe, [onerror], [onmouseover]').length") == 0
    assert tab.run("document.querySelectorAll('style').length") == tab.run(
        "1 + document.querySelectorAll('svg').length"
    )


def test_own_styles_are_applied(shown: Tab) -> None:
    assert shown.run("getComputedStyle(document.querySelector('nav ul')).display") == "flex"
    assert shown.run("getComputedStyle(document.querySelector('svg rect')).fill") != "rgb(0, 0, 0)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_readable(shown: Tab, scheme: str) -> None:
    shown.media(prefers_color_scheme=scheme)
    found = shown.run(_CONTRASTS)
    assert len(found) > 15
    assert {name: contrast for name, contrast in found.items() if contrast < 4.5} == {}
    dark = shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize(("choice", "system"), [("dark", "light"), ("light", "dark")])
def test_preferred_colour_scheme_is_respected(shown: Tab, choice: str, system: str) -> None:
    shown.media(prefers_color_scheme=system)
    before = shown.run("getComputedStyle(document.querySelector('svg .vd-1')).fill")
    shown.run(f"document.getElementById('{choice}').click()")
    assert (shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)") == (
        choice == "dark"
    )
    assert shown.run("getComputedStyle(document.querySelector('svg .vd-1')).fill") != before
    assert {name: one for name, one in shown.run(_CONTRASTS).items() if one < 4.5} == {}


def test_keyboard_reaches_everything_in_order_with_visible_focus(shown: Tab) -> None:
    wanted = shown.run("document.querySelectorAll('a, summary, pre, figure[tabindex]').length + 1")
    shown.run(
        "document.querySelectorAll('details').forEach(one => one.open = true);"
        "window.order = []; document.addEventListener('focusin', one => order.push(one.target))"
    )
    outlines = []
    for _ in range(wanted):
        shown.press("Tab", 9)
        outlines.append(shown.run(_FOCUSED))
    assert len({tuple(outline) for outline in outlines if outline[0] == "A"}) == shown.run(
        "document.querySelectorAll('a').length"
    )
    assert [outline for outline in outlines if outline[2] == "none"] == []
    assert shown.run("new Set(order).size") == wanted
    follows = "order.every((one, at) => !at || order[at - 1].compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING)"
    assert shown.run(follows)


def test_enter_opens_folded_sections(shown: Tab) -> None:
    shown.run("document.querySelector('summary').focus()")
    shown.press("Enter", 13, "\r")
    assert shown.run("document.querySelector('details').open")


def test_headings_and_landmarks(shown: Tab) -> None:
    levels = shown.run("[...document.querySelectorAll('h1, h2, h3')].map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    for name in ("header", "nav[aria-label]", "main", "section[aria-labelledby]"):
        assert shown.run(f"document.querySelectorAll('{name}').length") >= 1
    named = "[...document.querySelectorAll('[aria-labelledby]')].every(one => one.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id)))"
    assert shown.run(named)
    assert shown.run(
        "(all => new Set(all).size == all.length)([...document.querySelectorAll('[id]')].map(one => one.id))"
    )
    assert shown.run("document.documentElement.lang") == "en"
    assert shown.run(
        "[...document.querySelectorAll('nav a')].every(one => document.querySelector(one.getAttribute('href')))"
    )


@pytest.mark.parametrize("width", [360, 320, 768])
def test_page_never_scrolls_sideways(shown: Tab, width: int) -> None:
    shown.size(width)
    shown.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    wide, inner = shown.run(_WIDE)
    assert inner == width
    assert wide <= width


def test_print_shows_folded_sections(shown: Tab) -> None:
    closed = "[...document.querySelectorAll('details')].filter(one => !one.open).length"
    assert shown.run(closed) > 3
    shown.media("print", prefers_color_scheme="dark")
    hidden = "[...document.querySelectorAll('details > :not(summary)')].filter(one => !one.getBoundingClientRect().height || !one.checkVisibility()).length"
    assert shown.run(hidden) == 0
    assert shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert shown.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    clipped = (
        "[...document.querySelectorAll('pre')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert shown.run(clipped) == 0
    assert len(shown.ask("Page.printToPDF", preferCSSPageSize=True)["data"]) > 20_000


def test_reduced_motion_disables_animations(shown: Tab) -> None:
    shown.media(prefers_reduced_motion="reduce")
    moving = "[...document.querySelectorAll('*')].filter(one => { const s = getComputedStyle(one); return s.animationName != 'none' || parseFloat(s.transitionDuration) > 0 }).length"
    assert shown.run(moving) == 0
    assert shown.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
