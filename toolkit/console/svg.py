"""Pictures as SVG: boxes, lines, words; with titles for screen readers, dark mode, and without scripts.

Every function returns markup; text in a picture is escaped here and nowhere else. Colours are CSS variables
with defaults for stand-alone pictures: a page overrides them by `--vd-ink`, `--vd-on` (words on boxes) or
`--vd-1` to `--vd-8`.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from verl_doctor.toolkit.text import harmless

# Distinguishable with red-green colour blindness (Okabe and Ito, https://jfly.uni-koeln.de/color/), lighter
# in dark mode.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b8860b", "#7b5ea7", "#3a9ad9", "#c05a8e", "#8a8a8a")
_DARK = ("#56a3d9", "#ee8040", "#35c09a", "#d9b13b", "#a78bd6", "#7cc0ee", "#e08ab5", "#9a9a9a")
COLOURS = len(_LIGHT)
"""The number of colours, counted from 1; the last is grey."""

_FONT = "system-ui,sans-serif"
_NO_XML = {0xFFFE: "?", 0xFFFF: "?"}  # https://www.w3.org/TR/xml/#charsets


def picture(width: float, height: float, name: str, title: str, what: str, content: Iterable[str]) -> str:
    """Put a whole picture together. `name` makes its ids unique in a page, `what` describes it."""
    ids = quoteattr(f"{name}-title"), quoteattr(f"{name}-what")
    size = (
        f'viewBox="0 0 {_number(width)} {_number(height)}" width="{_number(width)}" '
        f'height="{_number(height)}"'
    )
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" class="vd" {size} role="img"'
    words = (
        f"<title id={ids[0]}>{_escaped(title)}</title><desc "
        f"id={ids[1]}>{_escaped(what)}</desc><style>{STYLE}</style>"
    )
    named = quoteattr(f"{name}-title {name}-what")
    return f"{begin} aria-labelledby={named}>{words}{''.join(content)}</svg>\n"


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    colour: int,
    title: str = "",
    *,
    is_open: bool = False,
) -> str:
    """Draw a box in one of the colours.

    `title` is its tooltip; `is_open` gives it a broken border and half the opacity.
    """
    kind = f"vd-{colour} vd-open" if is_open else f"vd-{colour}"
    box = (
        f'<rect class="{kind}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
        f'height="{_number(height)}" rx="1"'
    )
    return f"{box}><title>{_escaped(title)}</title></rect>" if title else f"{box}/>"


def line(x1: float, y1: float, x2: float, y2: float, *, is_faint: bool = False) -> str:
    """Draw a line in the colour of the words."""
    kind = "vd-line vd-faint" if is_faint else "vd-line"
    return (
        f'<line class="{kind}" x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}"/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: float = 11,
    is_faint: bool = False,
    on_box: bool = False,
) -> str:
    """Write words.

    Their baseline begins, is centred or ends (start, middle, end) there; `on_box` is readable on all colours.
    """
    kind = "vd-text vd-on" if on_box else "vd-text vd-faint" if is_faint else "vd-text"
    return (
        f'<text class="{kind}" x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}" '
        f"text-anchor={quoteattr(anchor)}>{_escaped(words)}</text>"
    )


def group(content: Iterable[str], title: str = "") -> str:
    """Group elements under one title."""
    title_element = f"<title>{_escaped(title)}</title>" if title else ""
    return f"<g>{title_element}{''.join(content)}</g>"


def _escaped(words: str) -> str:
    return escape(harmless(words).translate(_NO_XML))


def _number(value: float) -> str:
    """Format with two decimals, or none."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _style() -> str:
    inks = ";".join(f"--vd-own-{at}:{colour}" for at, colour in enumerate(_LIGHT, 1))
    dark = ";".join(f"--vd-own-{at}:{colour}" for at, colour in enumerate(_DARK, 1))
    fills = "".join(
        f".vd .vd-{at}{{fill:var(--vd-{at},var(--vd-own-{at}));stroke:var(--vd-{at},var(--vd-own-{at}))}}"
        for at in range(1, COLOURS + 1)
    )
    return (
        f".vd{{--vd-own-ink:#222;--vd-own-on:#fff;{inks}"
        ";color:var(--vd-ink,var(--vd-own-ink));max-width:100%;height:auto}"
        f"@media (prefers-color-scheme:dark){{.vd{{--vd-own-ink:#ddd;--vd-own-on:#111;{dark}}}}}"
        f"@media print{{.vd{{--vd-own-ink:#000;--vd-own-on:#fff;{inks}}}}}"
        f".vd-text{{fill:currentColor;font-family:{_FONT}}}.vd-line{{stroke:currentColor;stroke-width:1}}"
        f".vd-faint{{opacity:.6}}.vd-line.vd-faint{{opacity:.2}}{fills}.vd "
        ".vd-on{fill:var(--vd-on,var(--vd-own-on))}.vd .vd-open{fill-opacity:.4;stroke-dasharray:3 2}"
    )


def page_colours() -> str:
    """Return the colours as a style for a page whose `color-scheme` selects among them.

    The pictures of the page thus follow it.
    """
    pairs = enumerate(zip(_LIGHT, _DARK, strict=True), 1)
    return f":root{{{';'.join(f'--vd-{at}:light-dark({light},{dark})' for at, (light, dark) in pairs)}}}"


STYLE = _style()
"""The content of each picture's style element: a page with a policy on styles must allow it."""
