"""Where a script can be changed.

These are the words and commands of a shell script, and of strings in it that other shells run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_doctor.toolkit.collectors.launch.launch import Command, Word
from verl_doctor.toolkit.commands.script.value import as_written, in_shell
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import Simple, Written, below

_QUOTES = "'\""
_OVERRIDE = re.compile(r"[\"']?(\+{0,2}[A-Za-z_][\w.]*)=")
_ARGUMENTS = re.compile(
    r"[\"']?\$(?:[@*]|\{[@*][^}]*\}|\{1\+[\"']?\$@[\"']?\})[\"']?"
)  # "$@" and ${1+"$@"}: the script's arguments
_STRING = re.compile(r"(['\"]).*\s.*=.*\1", re.DOTALL)  # may hold a command with overrides


@dataclass(frozen=True)
class Place:
    """A word of a command.

    `top` is the word of the script that contains it: itself, or a string for another shell.
    """

    written: Written
    top: Written

    @property
    def nested(self) -> bool:
        """Whether the word is inside such a string."""
        return self.top is not self.written

    @property
    def key(self) -> str:
        """The key that the word sets, "" for any other word."""
        return _key(self.written.raw)

    def with_value(self, value: Any) -> str:
        """Return the word with another value after `=`, in the same quotes if they enclose the whole word."""
        key = self.written.raw.partition("=")[0]
        if self.nested:
            return f"{key.lstrip(_QUOTES)}={in_shell(value, nested=True)}"
        if key[0] in _QUOTES:
            return f"{key}={as_written(value, _QUOTES.replace(key[0], ''))}{key[0]}"
        return f"{key}={in_shell(value, nested=False)}"


@dataclass(frozen=True)
class Call:
    """A command in the script, or in a string of it."""

    words: tuple[Place, ...]

    @property
    def raws(self) -> list[str]:
        """Its words as written."""
        return [word.written.raw for word in self.words]

    def has(self, written: Sequence[str]) -> bool:
        """Return whether it contains these words in this order."""
        remaining = iter(self.raws)
        return all(word in remaining for word in written)

    def anchor(self, *, last: bool) -> Place:
        """Return the word after which to add others: the last, or the last before the script's arguments."""
        words = list(self.words)
        while not last and len(words) > 1 and _ARGUMENTS.fullmatch(words[-1].written.raw):
            words.pop()
        return words[-1]


@dataclass(frozen=True)
class Script:
    """The words and commands of the script at `path`."""

    path: str
    words: tuple[Place, ...]
    calls: tuple[Call, ...]

    def place(self, given: Sequence[Word], key: str) -> Place | None:
        """Return the one word that sets a key; None if it is in another file or is ambiguous."""
        of_key = [word for word in given if _key(word.text if word.text is not None else word.written) == key]
        if not of_key or of_key[-1].conditional or of_key[-1].path != self.path:
            return None
        found = [word for word in self.words if word.key == key]
        on_line = [word for word in found if word.written.line == of_key[-1].line]
        chosen = on_line or [word for word in found if word.nested]  # lines in a string are not counted
        return chosen[0] if len(chosen) == 1 and "\n" not in chosen[0].written.raw else None

    def call(self, command: Command) -> Call:
        """Return the command that contains all words of its overrides.

        Raises CannotEdit if it is not in this script.
        """
        if command.path == self.path:
            raws = {raw for call in self.calls for raw in call.raws}
            written = list(dict.fromkeys(word.written for word in command.words if word.written in raws))
            fitting = [call for call in self.calls if call.has(written or [command.module])]
            on_line = [call for call in self.calls if call.words[0].written.line == command.line]
            # The arguments of a function are written where it is called, not in the command.
            chosen = (
                [call for call in on_line if call in fitting]
                or [call for call in on_line if call.has([command.module])]
                or fitting
            )
            if len(chosen) == 1:
                return chosen[0]
        raise CannotEdit(
            f"{command.path}:{command.line}: the command that starts verl is not written there literally"
        )


def read(source: str, path: str) -> Script:
    """Read the text of a script."""
    words: list[Place] = []
    calls: list[Call] = []
    for part in below(parse(source)):
        if isinstance(part, Simple) and part.words:
            own = [Place(word, word) for word in part.words if isinstance(word, Written) and word.at >= 0]
            calls += [Call(tuple(own))] if len(own) == len(part.words) else []
        elif isinstance(part, Written) and part.at >= 0:
            words.append(Place(part, part))
            for inner in _commands_in(part):
                calls.append(inner)
                words += inner.words
    return Script(path, tuple(words), tuple(calls))


def _commands_in(top: Written) -> Iterator[Call]:
    """Yield the commands in a string."""
    if not _STRING.fullmatch(top.raw):
        return
    for part in below(parse(top.raw[1:-1], top.line)):
        if isinstance(part, Simple) and part.words and all(isinstance(word, Written) for word in part.words):
            inner = [word for word in part.words if isinstance(word, Written)]
            yield Call(tuple(Place(replace(word, at=word.at + top.at + 1), top) for word in inner))


def _key(text: str) -> str:
    match = _OVERRIDE.match(text)
    return match[1].lstrip("+") if match else ""
