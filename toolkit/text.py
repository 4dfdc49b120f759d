"""Text for a terminal: what comes from outside is made harmless, and lines are wrapped with a hanging indent."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable

# Cf holds the marks that reorder text on the screen; a log or a path may try to hide something with them.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def harmless(text: str, *, keep: str = "") -> str:
    """Show control, reordering and undecodable characters as escapes instead of obeying them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _HARMFUL
        else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def wrapped(text: str, width: int | None, *, indent: str = "", hanging: str = "") -> list[str]:
    """Wrap to `width` columns, or not at all when it is None: a pipe wants one thing on one line.

    Long words, such as paths, are never broken.
    """
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def listed(words: Iterable[str], most: int) -> str:
    """Name the first few and count the rest: "a, b and 7 more"."""
    every = list(words)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")


def ranges(numbers: Iterable[int]) -> str:
    """Name numbers, three or more that follow each other by the first and the last: "0-5, 7"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run) for run in runs)
    return ", ".join(word for run in words for word in run)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Say a number with its noun: "1 failure", "3 failures", "1,000 failures"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def clipped(words: str, most: int) -> str:
    """At most so many characters of it; what is cut off leaves "..."."""
    return words if len(words) <= most else f"{words[: most - 3]}..."


def in_bytes(amount: float) -> str:
    """An amount of bytes with three digits, in binary units: "64.0 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.0f} TiB" if amount >= 100 else f"{amount:.1f} TiB"


def in_time(seconds: float) -> str:
    """A length of time in the largest unit of which it holds two: "90 seconds", "3 hours", "5 days"."""
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * length:
            return counted(int(seconds // length), unit)
    return counted(int(seconds), "second")
