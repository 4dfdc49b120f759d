"""The word at the end of patched lines, so that one grep lists them: ours, and those that other people use.

People who patch a tree by hand keep the replaced line as a comment and end both lines in a word of their own, such as
`# Uky`. That is how a foreign marker is told from an ordinary comment: a commented-out line ends in it, a line of code
beside it as well, and the code itself does not speak of it.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TRAILING = re.compile(r"#\s*(?P<word>[A-Za-z][\w.-]{0,30})(?P<code>:\s*[A-Z]{2,5}[0-9]{3})?\s*$")
_KEPT_LINE = re.compile(
    r"^\s*#(?:.*[=(),:].*|\s*(?:import|from|return|raise|yield|del|assert|pass|break|continue)\b.*)\s#\s*(?P<word>[A-Za-z][\w.-]{0,30})\s*$"
)
# How far the line that replaces another may be from it: what is replaced is often an argument list.
_BESIDE = 8
# Trailing words that speak to tools, or say what they say in many trees.
_ORDINARY = frozenset(
    {"noqa", "nosec", "type", "pragma", "pylint", "fmt", "isort", "todo", "optional", "none"}
)


@dataclass(frozen=True)
class Marker:
    """Our own marker; the word is configurable."""

    word: str = "verl-doctor"

    def comment(self, code: str) -> str:
        """The comment that ends a line patched for this rule."""
        return f"# {self.word}: {code}"

    def codes(self, text: str) -> tuple[str, ...]:
        """The rules for which lines of this text are patched by us."""
        pattern = re.compile(rf"#\s*{re.escape(self.word)}:\s*([A-Z]{{2,5}}[0-9]{{3}})\s*$", re.MULTILINE)
        return tuple(sorted(set(pattern.findall(text))))


def is_marker(text: str) -> bool:
    """Whether a text can stand as a marker behind a `#`: ours with its code, or a word."""
    match = _TRAILING.fullmatch(f"# {text}")
    return match is not None and "\n" not in text


def foreign_words(text: str, marker: Marker) -> frozenset[str]:
    """Words that somebody else used to mark a replaced line which was kept as a comment, and what replaces it."""
    if "#" not in text:
        return frozenset()
    lines = text.splitlines()
    kept: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if match := _KEPT_LINE.match(line):
            kept.setdefault(match["word"], []).append(number)
    return frozenset(
        word
        for word, numbers in kept.items()
        if word.lower() not in _ORDINARY
        and word != marker.word
        and any(_replaced(lines, number, word) for number in numbers)
        and not _spoken_of(text, word)
    )


def _replaced(lines: list[str], number: int, word: str) -> bool:
    """Whether code that ends in the same word stands beside this kept line."""
    for line in lines[max(number - _BESIDE, 0) : number + _BESIDE + 1]:
        match = _TRAILING.search(line)
        if match and match["word"] == word and not match["code"] and not line.lstrip().startswith("#"):
            return True
    return False


def _spoken_of(text: str, word: str) -> bool:
    """Whether code has a name like this word: then the comments may be about that. Strings do not count."""
    try:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return any(token.type == tokenize.NAME and token.string == word for token in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False


def marked_lines(text: str, marker: Marker, words: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Line number, marker and line of every line that ends in our marker or in one of these words."""
    wanted = frozenset(words)
    for number, line in enumerate(text.splitlines(), 1):
        match = _TRAILING.search(line) if "#" in line else None
        if match is None:
            continue
        ours = match["word"] == marker.word and match["code"] is not None
        if ours or (match["word"] in wanted and match["code"] is None):
            yield number, match[0].lstrip("# ").strip(), line.strip()
