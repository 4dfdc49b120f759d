"""Integer arithmetic as in the shell's `$((...))`. POSIX.1-2017, Shell Command Language, 2.6.4."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!~&|^?:]))"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_DEEPEST = 50


class _UnknownError(Exception):
    """The value cannot be determined."""


def evaluate(expression: str, value_of: Callable[[str], str | None]) -> int | None:
    """Return the value, or None when it cannot be determined: an unknown variable, a division by zero, an assignment."""
    try:
        return _wrapped(_Expression(expression, value_of).value())
    except (_UnknownError, RecursionError):
        return None


def _wrapped(number: int) -> int:
    """Wrap to 64 bits, as bash does."""
    return (number + 2**63) % 2**64 - 2**63


class _Expression:
    def __init__(self, text: str, value_of: Callable[[str], str | None], depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise _UnknownError
        self.tokens: list[re.Match[str]] = []
        self.value_of = value_of
        self.depth = depth
        self.at = 0
        place, text = 0, text.strip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if not match:
                raise _UnknownError
            self.tokens.append(match)
            place = match.end()

    def value(self) -> int:
        if not self.tokens:
            return 0
        found = self.ternary()
        if self.at != len(self.tokens):
            raise _UnknownError
        return found

    def operator(self, *wanted: str) -> str:
        sign = self.tokens[self.at].group(3) if self.at < len(self.tokens) else None
        if sign is None or sign not in wanted:
            return ""
        self.at += 1
        return sign

    def ternary(self) -> int:
        condition = self.binary(0)
        if not self.operator("?"):
            return condition
        yes = self.ternary()
        if not self.operator(":"):
            raise _UnknownError
        no = self.ternary()
        return yes if condition else no

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.power()
        left = self.binary(level + 1)
        while sign := self.operator(*_LEVELS[level]):
            left = _wrapped(_apply(sign, left, self.binary(level + 1)))
        return left

    def power(self) -> int:
        base = self.unary()
        if not self.operator("**"):
            return base
        exponent = self.power()
        if not 0 <= exponent <= 1024:
            raise _UnknownError
        return _wrapped(base**exponent)

    def unary(self) -> int:
        sign = self.operator("-", "+", "!", "~")
        if sign:
            operand = self.unary()
            return {"-": -operand, "+": operand, "!": int(not operand), "~": ~operand}[sign]
        return self.atom()

    def atom(self) -> int:
        if self.operator("("):
            found = self.ternary()
            if not self.operator(")"):
                raise _UnknownError
            return found
        if self.at >= len(self.tokens):
            raise _UnknownError
        token = self.tokens[self.at]
        self.at += 1
        if token.group(1):
            return _number(token.group(1))
        if not token.group(2):
            raise _UnknownError
        text = self.value_of(token.group(2))
        if text is None:
            raise _UnknownError
        return _Expression(text, self.value_of, self.depth + 1).value()


def _number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if len(text) > 1 and text[0] == "0":
        if re.search("[89]", text):
            raise _UnknownError
        return int(text, 8)
    if len(text) > 19:
        raise _UnknownError
    return int(text)


def _apply(sign: str, left: int, right: int) -> int:
    if sign in "/%":
        if right == 0:
            raise _UnknownError
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    if sign in ("<<", ">>"):
        if not 0 <= right < 64:
            raise _UnknownError
        return left << right if sign == "<<" else left >> right
    simple: dict[str, Callable[[], int]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "==": lambda: int(left == right),
        "!=": lambda: int(left != right),
        "<": lambda: int(left < right),
        ">": lambda: int(left > right),
        "<=": lambda: int(left <= right),
        ">=": lambda: int(left >= right),
        "&": lambda: left & right,
        "|": lambda: left | right,
        "^": lambda: left ^ right,
        "&&": lambda: int(bool(left) and bool(right)),
        "||": lambda: int(bool(left) or bool(right)),
    }
    return simple[sign]()
