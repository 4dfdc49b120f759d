"""Check that every link within the built site leads somewhere, and that no page loads from elsewhere.

    python docs/check_links.py SITE

Prints what is wrong, a line each, and exits with 1 then. External links are not followed: they need a
network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_FOR_SEARCH_ENGINES = frozenset({"canonical", "search", "prev", "next", "index"})


@dataclass
class Page(HTMLParser):
    """What a page offers to link to, what it links to, and what it loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors, links and loaded files of one element."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in _LOADING and _LOADING[tag] in given and given.get("rel") not in _FOR_SEARCH_ENGINES:
            self.loaded.append(given[_LOADING[tag]])


def problems(site: Path) -> Iterator[str]:
    """What is wrong in the pages below a folder."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: there are no pages"
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for address in page.loaded:
            if urlsplit(address).scheme not in {"", "data"} or urlsplit(address).netloc:
                yield f"{name}: loads {address} from elsewhere"
        for address in dict.fromkeys([*page.links, *page.loaded]):
            if not leads_somewhere(address, path, pages):
                yield f"{name}: {address} leads nowhere"


def read(path: Path) -> Page:
    """Read one page."""
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def leads_somewhere(address: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Whether a link of the page at `path` leads to a file, and to an anchor in it where it names one."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if to.is_dir():
        to /= "index.html"
    if to not in pages:
        return to.is_file()
    return parts.fragment in {"", "top"} or unquote(parts.fragment) in pages[to].anchors


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found))
    sys.exit(bool(found))
