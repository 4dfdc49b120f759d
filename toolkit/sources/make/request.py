"""The words after `make`: the goals and variables, and the makefile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_LONG = {
    "directory": "C",
    "file": "f",
    "makefile": "f",
    "include-dir": "I",
    "eval": "E",
    "old-file": "o",
    "assume-old": "o",
    "what-if": "W",
    "new-file": "W",
    "assume-new": "W",
    "jobs": "j",
    "load-average": "l",
    "max-load": "l",
    "output-sync": "O",
    "dry-run": "n",
    "just-print": "n",
    "recon": "n",
    "question": "q",
    "touch": "t",
    "version": "v",
    "help": "h",
    "environment-overrides": "e",
}
_NEEDS_VALUE, _MAY_HAVE_VALUE, _RUNS_NOTHING, _UNKNOWN = "CfIEoW", "jlO", "nqtvh", "EoWe"


@dataclass
class Request:
    """The words after `make`: the folder and file, variables, and targets.

    `runs` is False with `-n` and the like.

    `problem` names an option that is not followed.
    """

    folder: str = ""
    file: str = ""
    given: dict[str, str] = field(default_factory=dict)
    goals: list[str] = field(default_factory=list)
    included: list[str] = field(default_factory=list)
    runs: bool = True
    problem: str = ""

    def option(self, letter: str, value: str) -> None:
        """Note an option."""
        if letter == "C":
            self.folder = value if value.startswith("/") or not self.folder else f"{self.folder}/{value}"
        elif letter == "f":
            self.problem = self.problem or ("several makefiles are not followed" if self.file else "")
            self.file = value
        elif letter == "I":
            self.included.append(value)
        elif letter in _RUNS_NOTHING:
            self.runs = False
        elif letter in _UNKNOWN:
            self.problem = self.problem or f"the option `-{letter}` of make is not followed"


def request_of(words: Sequence[str | None]) -> Request | None:
    """Parse the words after `make`; None if one that counts is unknown."""
    found, place = Request(), 0
    while place < len(words):
        word = words[place]
        if word is None:
            return None
        following = words[place + 1] if place + 1 < len(words) else ""
        if word.startswith("-") and len(word) > 1:
            for letter, attached in _options(word):
                value = attached
                if letter in _NEEDS_VALUE and value is None:
                    place += 1
                    if following is None:
                        return None
                    value = following
                elif letter in "jl" and value is None:
                    place += re.fullmatch(r"\d[\d.]*", following or "") is not None
                found.option(letter, value or "")
        elif match := re.fullmatch(r"([A-Za-z_][\w.-]*)\s*(?::{0,3}|\?|\+)=(.*)", word, re.DOTALL):
            found.given[match[1]] = match[2]
        else:
            found.goals.append(word)
        place += 1
    return found


def _options(word: str) -> Iterator[tuple[str, str | None]]:
    """Yield the options of one word, each as its letter, with the value that is attached to it."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if name in _LONG:
            yield _LONG[name], value if equals else None
        return
    for place, letter in enumerate(word[1:], 2):
        rest = word[place:]
        if letter in _NEEDS_VALUE or letter in _MAY_HAVE_VALUE:
            yield letter, rest or None
            return
        yield letter, None
