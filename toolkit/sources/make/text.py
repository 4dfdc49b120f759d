"""The text of a makefile: where its parts end, and make's functions that need nothing but arguments.

These functions need nothing but their own arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_QUOTED_PAIR = re.compile(r"([\"'])(.*?)\1\s+([\"'])(.*?)\3$")


class NotFollowedError(Exception):
    """A makefile or a target that cannot be followed. The message gives a short reason."""


def closing_bracket(text: str, start: int) -> int:
    """Return the place of the bracket that closes the one at `start`."""
    opening, depth = text[start], 0
    closing = ")" if opening == "(" else "}"
    for place in range(start, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
    raise NotFollowedError("a reference to a variable is not closed")


def without_comment(line: str) -> str:
    """Remove a comment.

    Inside of a reference, `#` begins none:
    https://www.gnu.org/software/make/manual/make.html#Makefile-Contents.
    """
    found, place = [], 0
    while place < len(line):
        if line[place] == "#":
            break
        end = place + 1
        if line.startswith("\\#", place):
            found.append("#")
            place += 2
            continue
        if line.startswith(("$(", "${"), place) and "#" in line[place:]:
            end = closing_bracket(line, place + 1) + 1
        found.append(line[place:end])
        place = end
    return "".join(found)


def colon_of_rule(line: str) -> int | None:
    """Return the place of the colon of a rule, None if it has none."""
    place = 0
    while place < len(line):
        if line.startswith(("$(", "${"), place):
            place = closing_bracket(line, place + 1)
        elif line[place] == ":" and not re.match(r":{1,3}=", line[place:]):
            return place
        elif line[place] in ":=":
            return None
        place += 1
    return None


def split_arguments(text: str, opening: str) -> list[str]:
    """Split the arguments of a function at commas outside of brackets of its own kind."""
    found, depth, start = [], 0, 0
    closing = ")" if opening == "(" else "}"
    for place, sign in enumerate(text):
        depth += (sign == opening) - (sign == closing)
        if sign == "," and depth == 0:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]]


def compared(text: str) -> tuple[str, str] | None:
    """Return the two sides of a condition, as make splits them."""
    if match := _QUOTED_PAIR.match(text):
        return match[2], match[4]
    if not text.startswith("("):
        return None
    depth, comma = 0, None
    for place in range(1, len(text)):
        sign = text[place]
        if sign == "," and comma is None and depth <= 0:
            comma = place
        elif sign == ")" and comma is not None and depth <= 0:
            return text[1:comma].rstrip(), text[comma + 1 : place].lstrip()
        depth += (sign == "(") - (sign == ")")
    return None


def _matcher(patterns: str) -> Callable[[str], bool]:
    found = [
        re.compile("(.*)".join(re.escape(part) for part in pattern.split("%", 1)), re.DOTALL)
        for pattern in patterns.split()
    ]
    return lambda word: any(pattern.fullmatch(word) for pattern in found)


def _filtered(patterns: str, text: str, *, kept: bool) -> str:
    matches = _matcher(patterns)
    return " ".join(word for word in text.split() if matches(word) == kept)


def _word(number: str, text: str) -> str:
    place = int(number) if number.strip().isdigit() else 0
    if place < 1:
        raise NotFollowedError(f"`$(word {number},...)` is not followed")
    return (["", *text.split()][place:] or [""])[0]


# The functions that are followed, with the number of their arguments.
FUNCTIONS: Mapping[str, tuple[int, Callable[..., str]]] = {
    "strip": (1, lambda text: " ".join(text.split())),
    "filter": (2, lambda patterns, text: _filtered(patterns, text, kept=True)),
    "filter-out": (2, lambda patterns, text: _filtered(patterns, text, kept=False)),
    "findstring": (2, lambda part, text: part if part in text else ""),
    "subst": (3, lambda old, new, text: text.replace(old, new) if old else text + new),
    "addprefix": (2, lambda prefix, text: " ".join(f"{prefix}{word}" for word in text.split())),
    "addsuffix": (2, lambda suffix, text: " ".join(f"{word}{suffix}" for word in text.split())),
    "firstword": (1, lambda text: (text.split() or [""])[0]),
    "lastword": (1, lambda text: (text.split() or [""])[-1]),
    "words": (1, lambda text: str(len(text.split()))),
    "word": (2, _word),
}
