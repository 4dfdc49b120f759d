"""Evaluates conditions: `[ ... ]`, `[[ ... ]]` and `(( ... ))` with known operands. Files are not examined."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from verl_doctor.toolkit.sources.shell.expand import Scope, evaluated, fields, text
from verl_doctor.toolkit.sources.shell.syntax import AndOr, Node, Simple, Written

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


def decided(words: Sequence[str | None], *, patterns: bool) -> bool | None:
    """Return whether the test holds, or None when that cannot be determined.

    `words` are those between the brackets, None for unknown ones. With `patterns`, as in `[[`, the right side of `==` is a pattern.
    """
    return _Test(list(words), patterns).value()


class _Test:
    def __init__(self, words: list[str | None], patterns: bool) -> None:
        self.words = words
        self.patterns = patterns
        self.at = 0

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
        left = len(self.words) - self.at
        if left > 1 and self.take("!"):
            found = self.primary()
            return None if found is None else not found
        if left > 2 and self.take("("):
            found = self.either()
            return found if self.take(")") else None
        operator = self.words[self.at + 1] if left >= 3 else None
        if operator in _NUMBERS or operator in _TEXTS:
            first, second = self.words[self.at], self.words[self.at + 2]
            self.at += 3
            return None if first is None or second is None else self.compared(first, operator or "", second)
        if left >= 2 and self.words[self.at] in ("-z", "-n"):
            kind, operand = self.words[self.at], self.words[self.at + 1]
            self.at += 2
            return None if operand is None else bool(operand) == (kind == "-n")
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
        if self.patterns and any(sign in right for sign in "*?["):
            if "[" in right:
                return None
            same = fnmatch.fnmatchcase(left, right)
        else:
            same = left == right
        return same == (operator != "!=")


def is_test(node: Node) -> bool:
    """Return whether a command is `[`, `[[`, `test` or `((`."""
    return (
        isinstance(node, Simple)
        and bool(node.words)
        and isinstance(node.words[0], Written)
        and node.words[0].raw in _TESTS
    )


def holds(node: Node, scope: Scope) -> bool | None:
    """Return whether a test succeeds; None when undetermined, and for any other command."""
    if isinstance(node, AndOr):
        found = holds(node.first, scope)
        for sign, command in node.rest:
            other = holds(command, scope)
            if found is None or (other is None and found == (sign == "&&")):
                return None
            if found == (sign == "&&"):
                found = other
        return found
    if not isinstance(node, Simple) or not is_test(node):
        return None
    first = node.words[0]
    name = first.raw if isinstance(first, Written) else ""
    if name == "((":
        expression = node.words[1]
        number = evaluated(expression.parts, scope) if isinstance(expression, Written) else None
        return None if number is None else number != 0
    words: list[str | None] = []
    for word in node.words[1:]:
        if isinstance(word, Written):
            words += [text(word.parts, scope)] if name == "[[" else fields(word.parts, scope)
    if name in ("[", "[["):
        if words[-1:] != ["]" * len(name)]:
            return None
        words.pop()
    return decided(words, patterns=name == "[[")
