"""Check in a real browser that no page of the built site scrolls sideways on a telephone, without scripts.

    python docs/check_width.py SITE

It uses the browser of the tests (`tests/support/browser`). Prints the pages that do, and exits with 1 then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.browser.browser import Tab, browsing
from support.browser.here import command

WIDTHS = (390, 1280)
_MEASURE = "[document.documentElement.scrollWidth, innerWidth, document.querySelectorAll('h1').length]"
_SCROLLING = """[...document.querySelectorAll('article *')].filter(part => part.scrollWidth > part.clientWidth + 1
  && ['auto', 'scroll'].includes(getComputedStyle(part).overflowX)).map(part => part.tagName + '.' + part.className)"""


def problems(site: Path) -> Iterator[str]:
    """Pages that are wider than the window, have a part that scrolls sideways, or no heading."""
    pages = sorted(
        path
        for path in site.resolve().rglob("*.html")
        if "_static" not in path.parts and path.name != "search.html"
    )
    with browsing(command()) as tab:
        tab.ask("Emulation.setScriptExecutionDisabled", value=True)
        for width in WIDTHS:
            tab.size(width)
            for path in pages:
                show(tab, path)
                wide, window, headings = tab.run(_MEASURE)
                if wide > window or not headings:
                    yield f"{path.relative_to(site.resolve())}: {wide} pixels in {window}, {headings} headings"
                if width == min(WIDTHS) and (parts := tab.run(_SCROLLING)):
                    yield (
                        f"{path.relative_to(site.resolve())}: {', '.join(sorted(set(parts)))} scroll sideways"
                    )


def show(tab: Tab, path: Path) -> None:
    """Show a page and wait until it is loaded.

    Where scripts are off no promise is ever kept, so it looks again and again.
    """
    tab.ask("Page.navigate", url=path.as_uri())
    until = time.monotonic() + 60
    while tab.run("document.readyState + location.pathname") != f"complete{quote(str(path))}":
        if time.monotonic() > until:
            raise TimeoutError(str(path))


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found))
    sys.exit(bool(found))
