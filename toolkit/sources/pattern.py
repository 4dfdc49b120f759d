"""Regular expressions from a user's files and settings: which of them may be matched here.

Python's matcher holds the interpreter until it ends, so no time limit of ours stops a pattern that takes
years.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 1000
_MOST_STEPS = 200_000
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:P<\w+>|[:=!>]|<[=!])|\(\?[aimsLu]+\)|[*+?]|\{\d*,?\d*\}|.",
    re.DOTALL,
)


@dataclass
class _Group:
    """A group: its alternatives, and whether any part of it may match texts of several lengths."""

    ways: int = 1
    varies: bool = False


def is_quick(pattern: str, length: int) -> bool:
    """Return whether a match with a text of this many characters certainly ends soon.

    Then no repetition is within another.
    """
    return 0 < _examined(pattern, length)[0] * length <= _MOST_STEPS


def lacks(pattern: str, text: str) -> bool:
    """Return whether a text of ASCII characters lacks a letter, in either case, that every match has."""
    steps, needed = _examined(pattern, len(text))
    return steps > 0 and text.isascii() and any(sign.lower() not in text.lower() for sign in needed)


def _examined(pattern: str, length: int) -> tuple[int, list[str]]:
    """Return how often a match may try one place of a text, and the characters that every match has.

    The number is 0 if it is unknown.
    """
    unknown: tuple[int, list[str]] = (0, [])
    if len(pattern) > _LONGEST:
        return unknown
    groups, steps, needed = [_Group()], 1, list[str]()
    before, inner = "", False  # what a repetition repeats, and whether that varies
    for match in _PART.finditer(pattern):
        part = match[0]
        if part.startswith("(") and pattern[match.end() : match.end() + 1] == "?" and part == "(":
            return unknown  # conditions, comments, verbose patterns
        if part in ("*", "+", "?") or (part[0] == "{" and len(part) > 1):
            if before == "repetition" and part in ("?", "+"):
                continue  # a lazy or possessive one
            if inner and part != "?":
                return unknown
            if before == "needed" and part != "+":
                needed.pop()
            steps *= 2 if part == "?" else length + 1
            groups[-1].varies = True
            before, inner = "repetition", False
        elif part == "|":
            groups[-1].ways += 1
            groups[-1].varies = True
            before = ""
        elif part[0] == "(" and part[-1] != ")":
            groups.append(_Group())
            before = ""
        elif part == ")":
            if len(groups) == 1:
                return unknown
            group = groups.pop()
            steps *= group.ways
            groups[-1].varies |= group.varies
            before, inner = "group", group.varies
        else:
            sign = part[1] if part[0] == "\\" and not part[1:].isalnum() else part
            plain = len(sign) == 1 and sign.isascii() and (part[0] == "\\" or sign not in ".^$")
            before, inner = "", False
            if plain and len(groups) == 1:
                needed.append(sign)
                before = "needed"
    steps *= groups[0].ways
    return (steps, [] if groups[0].ways > 1 else needed) if len(groups) == 1 else unknown
