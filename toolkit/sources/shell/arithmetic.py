"""Integer arithmetic as in the shell's `$((...))`. POSIX.1-2017, Shell Command Language, 2.6.4."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|\$?\{?([A-Za-z_]\w*|(?<=\$)#)\}?"
    r"|(<<=|>>=|[-+*/%&^|]=|\+\+|--|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!~&|^?:=,]))"
)
_ASSIGNED = re.compile(
    r"(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:\+\+|--|(?:<<|>>|[-+*/%&^|])?=(?!=))"
)
_ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "<<=", ">>=")
_SKIPS = frozenset({"&&", "||", "?"})  # what follows them may not be evaluated
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


class _DividedByZeroError(_UnknownError):
    """The shell refuses the expression."""


def evaluate(
    expression: str,
    value_of: Callable[[str], str | None],
    changed: dict[str, int] | None = None,
    refused: list[str] | None = None,
) -> int | None:
    """Return the value, or None when undetermined, as with an unknown variable or a division by zero.

    `changed` gets the variables that the expression assigns, with their values, `refused` the shell's message
    for a division by zero.
    """
    try:
        parsed = _Expression(expression, value_of)
        value = _wrapped(parsed.value())
    except _DividedByZeroError:
        names = re.findall(r"[A-Za-z_]\w*", expression)
        texts = [expression, *(value_of(name) or "" for name in names)]
        if refused is not None and not any(sign in text for text in texts for sign in _SKIPS):
            refused.append(f"{expression.strip()}: division by 0")
        return None
    except (_UnknownError, RecursionError):
        return None
    if changed is not None:
        changed.update(parsed.changed)
    return value


def assigned_in(expression: str) -> set[str]:
    """Return the names of the variables that an expression may assign."""
    return {before or after for before, after in _ASSIGNED.findall(expression)}


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
        self.changed: dict[str, int] = {}
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
        found = self.assignments()
        if self.at != len(self.tokens):
            raise _UnknownError
        if self.changed and any(token.group(3) in _SKIPS for token in self.tokens):
            raise _UnknownError
        return found

    def assignments(self) -> int:
        found = self.assignment()
        while self.operator(","):
            found = self.assignment()
        return found

    def assignment(self) -> int:
        name = self.tokens[self.at].group(2) if self.at < len(self.tokens) else None
        if name is not None:
            self.at += 1
            if sign := self.operator(*_ASSIGNS):
                before = 0 if sign == "=" else self.variable(name)
                value = self.assignment()
                return self.assign(name, value if sign == "=" else _apply(sign[:-1], before, value))
            self.at -= 1
        return self.ternary()

    def assign(self, name: str, value: int) -> int:
        self.changed[name] = _wrapped(value)
        return self.changed[name]

    def variable(self, name: str) -> int:
        if name in self.changed:
            return self.changed[name]
        text = self.value_of(name)
        if text is None:
            raise _UnknownError
        inner = _Expression(text, self.value_of, self.depth + 1)
        value = inner.value()
        if inner.changed:
            raise _UnknownError
        return value

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
        if sign := self.operator("++", "--"):
            name = self.tokens[self.at].group(2) if self.at < len(self.tokens) else None
            if name is not None:
                self.at += 1
                return self.assign(name, self.variable(name) + (1 if sign == "++" else -1))
            return self.unary()  # `--5` is 5
        sign = self.operator("-", "+", "!", "~")
        if sign:
            operand = self.unary()
            return {"-": -operand, "+": operand, "!": int(not operand), "~": ~operand}[sign]
        return self.atom()

    def atom(self) -> int:
        if self.operator("("):
            found = self.assignments()
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
        value = self.variable(token.group(2))
        if sign := self.operator("++", "--"):
            self.assign(token.group(2), value + (1 if sign == "++" else -1))
        return value


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
            raise _DividedByZeroError
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
