"""Pages in which every text is untrusted, and how parsers read them."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import strategies as st

from verl_doctor.toolkit.commands.report.page import (
    Bars,
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
from verl_doctor.toolkit.console.svg_bars import Bar
from verl_doctor.toolkit.logs.timeline.timeline import Proof, Span, Timeline, Worker

TRICKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</details></summary>",
    '" onmouseover="x',
    "<!-- ",
    "--> -->",
    "]]>",
    "</style><style>*{}",
    "@octocat",
    "ann@example.org",
    "(@team/core)",
    "#123",
    "verl#42",
    "GH-17",
    "https://github.com/o/r/issues/1",
    "www.example.org",
    "9f1c2d3e4b5a69788796a5b4c3d2e1f00f1e2d3c",
    "`",
    "```",
    "~~~~",
    "~~gone~~",
    "a | b",
    "\\|",
    "`a|b@c`",
    "|---|---|",
    "\n\n# heading",
    "- [ ] task",
    "1. one",
    "> quote",
    "***",
    "===",
    "[link](javascript:alert(1))",
    "![picture](http://x)",
    "[ref]: http://x",
    "&lt;b&gt; &#64;octocat",
    "$x$ and $$y$$",
    "\x1b[31mred\x07\u202e\ud800\u2028",
    ":tada:",
    "    indented",
    "\ttab",
    "$styles ${style} %s {0}",
)
TEXTS = st.one_of(
    st.sampled_from(TRICKS),
    st.lists(st.sampled_from(TRICKS), min_size=1, max_size=4).map(" ".join),
    st.lists(st.sampled_from(TRICKS), min_size=1, max_size=4).map("".join),
    st.text(st.characters(exclude_categories=[]), min_size=1, max_size=12),
).filter(lambda text: text.strip())


def page_with(said: str, *more: str) -> Page:
    """A page with each kind of block, and these texts everywhere."""
    a, b, c = (said, *(more or (said, said)))[:3]
    blocks = (
        Paragraph(a),
        Points((b, a)),
        Values(((a, b), (b, c))),
        Table((a, b), ((c, a), (b, c))),
        Listing((a, b, c), Language.DIFF),
        Listing((c, f"+{a}", f"-{b}", f"@@ {c}")),
        Bars(a, (Bar(b, 2.0), Bar(c, 0.0, 2))),
        StartUp(_timeline(a, b, c), (a, b, c)),
        Fold(a, (Paragraph(b), Table((c, b), ((a, b),)), Listing((c,)))),
    )
    cards = (Card(c, blocks, Mark.BAD), Card(a, blocks))
    return Page(a, Mark.BAD, b, (PageSection(a, blocks), PageSection(c, cards)), (b, c))


def _timeline(a: str, b: str, c: str) -> Timeline:
    proof = (Proof(a, 1, b),)
    spans = (
        Span("model", 3.0, 1.0, "told", proof),
        Span("step", 9.0, 5.0, "between", proof, parts=((c, 2.0),)),
    )
    return Timeline(
        (Worker(f"x {a} pid=1", b, spans), Worker(f"y {c}", a, spans)), (), 20.0, has_step=True, notes=(b,)
    )


class Elements(HTMLParser):
    """Elements of a page with their attribute names, comments, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, ...]] = []
        self.comments: list[str] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        self.said.append(data)
