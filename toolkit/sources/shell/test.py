"""Evaluates conditions: `[ ... ]`, `[[ ... ]]` and `(( ... ))` with known operands.

Of files, only that they do not exist is known.
"""

from __future__ import annotations

from collections.abc import Callable

from verl_doctor.toolkit.sources.shell.expand import evaluated, fields, pattern_of, text
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.syntax import Simple, Written
from verl_doctor.toolkit.sources.shell.words import DEEPEST

_TESTS = ("[", "[[", "test", "((")


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}
_TEXTS = frozenset({"=", "==", "!="})
NEEDS_FILE = frozenset({"-e", "-f", "-d", "-s", "-r", "-w", "-x", "-L", "-h", "-a"})
"""Tests that fail where the file does not exist."""


class _Test:
    """A test: `words` are those between the brackets, None for unknown ones.

    `patterns` are the words as patterns, for the right side of `==` in `[[`; None for `[`. `lacks` returns
    whether a file certainly does not exist.
    """

    def __init__(
        self,
        words: list[str | None],
        scope: Scope,
        patterns: list[str | None] | None,
        lacks: Callable[[str], bool],
    ) -> None:
        self.words = words
        self.scope = scope
        self.patterns = patterns
        self.lacks = lacks
        self.at = 0
        self.depth = 0

    def value(self) -> bool | None:
        if not self.words:
            return False
        found = self.either()
        return found if self.at == len(self.words) else None

    def take(self, *wanted: str) -> bool:
        if self.at + len(wanted) <= len(self.words) and self.words[self.at : self.at + len(wanted)] == list(
            wanted
        ):
            self.at += len(wanted)
            return True
        return False

    def either(self) -> bool | None:
        found = self.both()
        while self.take("||") or self.take("|", "|") or self.take("-o"):
            other = self.both()
            found = True if found or other else (None if None in (found, other) else False)
        return found

    def both(self) -> bool | None:
        found = self.primary()
        while self.take("&&") or self.take("&", "&") or self.take("-a"):
            other = self.primary()
            found = False if found is False or other is False else (None if None in (found, other) else True)
        return found

    def primary(self) -> bool | None:
        negated = False
        while len(self.words) - self.at > 1 and self.take("!"):
            negated = not negated
        found = self.plain()
        return None if found is None else found is not negated

    def plain(self) -> bool | None:
        """A test without `!` in front."""
        left = len(self.words) - self.at
        if left > 2 and self.take("("):
            if self.depth == DEEPEST:
                self.at = len(self.words)
                return None
            self.depth += 1
            found = self.either()
            self.depth -= 1
            return found if self.take(")") else None
        operator = self.words[self.at + 1] if left >= 3 else None
        if operator in _NUMBERS or operator in _TEXTS:
            right = self.words if self.patterns is None or operator in _NUMBERS else self.patterns
            first, second = self.words[self.at], right[self.at + 2]
            self.at += 3
            return None if first is None or second is None else self.compared(first, operator or "", second)
        if left >= 2 and self.words[self.at] in ("-z", "-n"):
            kind, operand = self.words[self.at], self.words[self.at + 1]
            self.at += 2
            return None if operand is None else bool(operand) == (kind == "-n")
        if left >= 2 and self.words[self.at] in NEEDS_FILE:
            operand = self.words[self.at + 1]
            self.at += 2
            return False if operand and self.lacks(operand) else None
        if left == 1:
            operand = self.words[self.at]
            self.at += 1
            return None if operand is None else bool(operand)
        self.at = len(self.words)  # a file test, or an unknown operator
        return None

    def compared(self, left: str, operator: str, right: str) -> bool | None:
        if operator in _NUMBERS:
            try:
                return _NUMBERS[operator](int(left), int(right))
            except ValueError:
                return None
        same = self.scope.matches(left, right) if self.patterns is not None else left == right
        return None if same is None else same == (operator != "!=")


def is_test(node: Simple) -> bool:
    """Return whether a command is `[`, `[[`, `test` or `((`."""
    return bool(node.words) and isinstance(node.words[0], Written) and node.words[0].raw in _TESTS


def holds(node: Simple, scope: Scope, lacks: Callable[[str], bool] = lambda _: False) -> bool | None:
    """Return whether a test succeeds; None when undetermined. It assigns what its arithmetic assigns.

    `lacks` returns whether a file certainly does not exist.
    """
    first = node.words[0]
    name = first.raw if isinstance(first, Written) else ""
    if name == "((":
        expression = node.words[1]
        number = evaluated(expression.parts, scope) if isinstance(expression, Written) else None
        return None if number is None else number != 0
    words: list[str | None] = []
    patterns: list[str | None] = []
    for word in node.words[1:]:
        if isinstance(word, Written):
            words += [text(word.parts, scope)] if name == "[[" else fields(word.parts, scope)
            special = name == "[[" and not {"*", "?"}.isdisjoint(words[-1] or "")
            patterns += [pattern_of(word.parts, scope)] if special else words[-1:]
    if name in ("[", "[["):
        if words[-1:] != ["]" * len(name)]:
            return None
        words.pop()
    if name == "[[" and not {"&", "|"}.isdisjoint(words):
        scope.unset.clear()  # what follows these may not be expanded
    return _Test(words, scope, patterns if name == "[[" else None, lacks).value()
