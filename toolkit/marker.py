"""The marker in comments on patched lines, ours or other people's, so that one grep lists them.

People who patch a tree by hand keep the replaced line as a comment and put a word, such as `# Uky`, on both
lines. That distinguishes another user's marker from an ordinary comment: a commented-out line ends or begins
with it, a neighbouring line of code carries it as well, and no name in the code contains it. A block between
`# Uky begin` and `# Uky end` is marked as a whole. Once a word is known, it marks every line with the word
anywhere in its comment.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TRAILING = re.compile(r"#\s*(?P<word>[A-Za-z][\w.-]{0,30})(?P<code>:\s*[A-Z]{2,5}[0-9]{3})?\s*$")
_KEPT_LINE = re.compile(
    r"^\s*#(?:.*[=(),:].*|\s*(?:import|from|return|raise|yield|del|assert|pass|break"
    r"|continue)\b.*)\s#\s*(?P<word>[A-Za-z][\w.-]{0,30})\s*$"
)
_KEPT_BEHIND_WORD = re.compile(
    r"^\s*#\s*(?P<word>[A-Za-z][\w.-]{0,30}?)\s*[:>|-]{1,2}\s+"
    r"(?:\S*\s*=.*|[\w.]+\(.*|(?:import|from|return|raise|export)\s.*)$"
)
_EDGE = re.compile(
    r"^\s*#[\s\W]*(?:(?P<edge>begin|start|end)[\s:_-]+(?P<word>[A-Za-z][\w.-]{0,30})"
    r"|(?P<first>[A-Za-z][\w.-]{0,30}?)[\s:_-]+(?P<last>begin|start|end))\W*$",
    re.IGNORECASE,
)
# Maximum distance between a line and its replacement: often an argument list is replaced.
_BESIDE = 8
# Trailing words that address tools, or are common in many trees.
_ORDINARY = frozenset(
    {
        *("noqa", "nosec", "type", "pragma", "pylint", "fmt", "isort", "todo", "optional", "none"),
        *(
            "note",
            "fixme",
            "xxx",
            "hack",
            "warning",
            "example",
            "old",
            "new",
            "before",
            "after",
            "default",
            "see",
        ),
    }
)


@dataclass(frozen=True)
class Marker:
    """Our own marker; the word is configurable."""

    word: str = "verl-doctor"

    def comment(self, code: str) -> str:
        """Return the comment that ends a line patched for this rule."""
        return f"# {self.word}: {code}"

    def codes(self, text: str) -> tuple[str, ...]:
        """Return the rules for which we patched lines of this text."""
        pattern = re.compile(rf"#\s*{re.escape(self.word)}:\s*([A-Z]{{2,5}}[0-9]{{3}})\s*$", re.MULTILINE)
        return tuple(sorted(set(pattern.findall(text))))


def is_marker(text: str) -> bool:
    """Return whether a text can serve as a marker after a `#`: ours with its code, or a word."""
    match = _TRAILING.fullmatch(f"# {text}")
    return match is not None and "\n" not in text


def foreign_words(text: str, marker: Marker) -> frozenset[str]:
    """Return the marker that another tool or person put on a replaced line and its replacement.

    The replaced line is kept as a comment; both have the marker.
    """
    if "#" not in text:
        return frozenset()
    lines = text.splitlines()
    kept: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if "#" in line and (match := _KEPT_LINE.match(line) or _KEPT_BEHIND_WORD.match(line)):
            kept.setdefault(match["word"], []).append(number)
    words = {
        word for word, numbers in kept.items() if any(_replaced(lines, number, word) for number in numbers)
    } | _words_of_blocks(lines)
    return frozenset(
        word
        for word in words
        if word.lower() not in _ORDINARY and word != marker.word and not _is_named(text, word)
    )


def _words_of_blocks(lines: Iterable[str]) -> set[str]:
    """Return capitalised words that enclose a block with `begin` and `end`.

    `# Encoder start` and `# end training` are prose.
    """
    edges: dict[str, list[str]] = {}
    for line in lines:
        if "#" in line and (edge := _edge(line)) and edge[0][0].isupper() and "start" not in line.lower():
            edges.setdefault(edge[0], []).append(edge[1])
    return {word for word, found in edges.items() if found == ["begin", "end"] * (len(found) // 2)}


def _edge(line: str) -> tuple[str, str] | None:
    """Return the word of a line that begins or ends a block, and which of the two it does."""
    match = _EDGE.match(line)
    if match is None:
        return None
    side = (match["edge"] or match["last"]).lower()
    return match["word"] or match["first"], "end" if side == "end" else "begin"


def _replaced(lines: list[str], number: int, word: str) -> bool:
    """Return whether code that ends in the same word is next to this kept line."""
    for line in lines[max(number - _BESIDE, 0) : number + _BESIDE + 1]:
        match = _TRAILING.search(line)
        if match and match["word"] == word and not match["code"] and not line.lstrip().startswith("#"):
            return True
    return False


def _is_named(text: str, word: str) -> bool:
    """Return whether code has a name like this word: then comments may refer to that name.

    Strings do not count.
    """
    try:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return any(token.type == tokenize.NAME and token.string == word for token in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False


def marked_lines(text: str, marker: Marker, words: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield number, marker and text of every line that has our marker or one of these words.

    Our marker is at the end of the line, the word in its comment.

    All lines of a block of such a word are marked, including its edges.
    """
    known = frozenset(words)
    anywhere = _in_comment(known)
    block = ""
    for number, line in enumerate(text.splitlines(), 1):
        has_comment = "#" in line
        match = _TRAILING.search(line) if has_comment else None
        if match and match["word"] == marker.word and match["code"] is not None:
            yield number, match[0].lstrip("# ").strip(), line.strip()
            continue
        edge = _edge(line) if has_comment else None
        if edge and edge[0] in known:
            block = edge[0] if edge[1] == "begin" and _ends(text, number, edge[0]) else ""
            yield number, edge[0], line.strip()
        elif block:
            yield number, block, line.strip()
        elif anywhere and has_comment and (found := anywhere.search(line)):
            yield number, found["word"], line.strip()


def _ends(text: str, begin: int, word: str) -> bool:
    """Return whether the block that begins in this line has an end.

    Without an end, only its first line is marked.
    """
    return (word, "end") in (_edge(line) for line in text.splitlines()[begin:] if word in line)


def _in_comment(words: frozenset[str]) -> re.Pattern[str] | None:
    if not words:
        return None
    choice = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?:^|\s|[^\"'\w&/])#(?:.*[^\w.-])?(?P<word>{choice})(?![\w-]|\.\w)")
