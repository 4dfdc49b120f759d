"""External text in Markdown that GitHub renders: shown literally, never interpreted.

A backslash disables markup, but not what GitHub detects afterwards: people (`@name`), issues (`#12`,
`GH-12`), commits, addresses, formulas. GitHub leaves code alone, so words that it would take for one of these
are shown as code
(https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/autolinked-references-and-urls).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from verl_doctor.toolkit.text import harmless

# An underscore between letters or digits, and ">=", mean nothing to Markdown.
_SPECIAL = re.compile(r"([\\`*\[\]<|#~&]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|>(?!=))")
_WORD = re.compile(r"\S+")
_LIVE = re.compile(
    r"@|#\d|\bGH-\d|://|www\.|\$|(?<![0-9a-z])(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,40}(?![0-9a-z])",
    re.IGNORECASE,
)
_NOT_IN_CODE = re.compile(r"[|`\\]")
# A word in which Markdown would take underscores, asterisks or angle brackets for markup, without the
# punctuation after it.
_MARKED = re.compile(
    r"(?<!\S)(?=[^\s`]*(?:\*|<[A-Za-z/]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])))[^\s`]*[^\s`;,.:](?=[;,.:]*"
    r"(?:\s|$))"
)
_INVISIBLE = "&#8203;"
_JOINT = re.compile(r"(?<=[@#/:$-])|(?<=www)|(?<=[0-9a-f]{6})", re.IGNORECASE)
_JOINT_IN_HTML = re.compile(r"(?<=[@#$])|(?<=:)(?=//)|(?<=GH)(?=-)|(?<=www)(?=\.)", re.IGNORECASE)


def escaped(text: str) -> str:
    """Return text in which neither Markdown nor GitHub interprets anything, even in the cell of a table."""
    return _WORD.sub(lambda word: _plain(word[0]), harmless(text))


def _plain(word: str) -> str:
    if not _LIVE.search(word):
        return _SPECIAL.sub(r"\\\1", word)
    if not _NOT_IN_CODE.search(word):
        return f"`{word}`"
    # What code in a cell cannot hold is split by a zero-width space wherever GitHub might detect something.
    return _INVISIBLE.join(_SPECIAL.sub(r"\\\1", part) for part in _JOINT.split(word))


def with_code(text: str) -> str:
    """Return our own sentence with the words in backquotes that Markdown would take for markup.

    Examples are `__path__` and `*.bin`.
    """
    return _MARKED.sub(lambda word: f"`{word[0]}`", text)


def paragraph(text: str) -> str:
    """Return the same for the start of a line: it begins no list, no heading and no rule."""
    shown = escaped(text.strip())
    number = re.match(r"\d+(?=[.)])", shown)
    if number:
        return f"{number[0]}\\{shown[number.end() :]}"
    return f"\\{shown}" if shown[:1] in {"-", "+", "="} else shown


def code(text: str) -> str:
    """Return inline code, with as many backquotes as the text needs."""
    shown = harmless(text)
    runs = [len(run) for run in re.findall(r"`+", shown)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if runs else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def fenced(text: str, language: str = "") -> Iterator[str]:
    """Yield a code block that its content cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from (harmless(line, keep="\t") for line in text.splitlines())
    yield fence


def in_html(text: str) -> str:
    """Return text between tags, in which GitHub detects nothing either."""
    return _INVISIBLE.join(html.escape(part) for part in _JOINT_IN_HTML.split(harmless(text)))
