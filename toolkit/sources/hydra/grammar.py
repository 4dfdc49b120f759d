"""Parses one Hydra override, such as `+a.b=[1,x]`, by Hydra's own grammar.

Source: hydra-core 1.3, hydra/grammar/OverrideLexer.g4 and OverrideParser.g4. Hydra itself is no dependency:
the antlr runtime that it pins conflicts with other packages in users' environments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Sign = Literal["", "+", "++", "~"]

_ID = r"[A-Za-z_][\w-]*"
_SPECIAL = r"[A-Za-z_$][\w$-]*"
_STEP = rf"(?:{_SPECIAL}|(?:0|[1-9](?:_?\d)*))"
_PACKAGE = rf"(?:{_STEP}(?:\.{_STEP})+|{_SPECIAL}|)"
_KEY = re.compile(rf"(\+\+|\+|~|)({_ID}(?:/{_ID})+|{_PACKAGE})(?:@({_PACKAGE}))?", re.ASCII)

_INT = r"(?:0|[1-9](?:_?\d)*)"
_POINT = rf"(?:{_INT}?\.\d(?:_?\d)*|{_INT}\.)"
_FLOAT = rf"[+-]?(?:(?:{_POINT}|{_INT})[eE][+-]?\d(?:_?\d)*|{_POINT}|[Ii][Nn][Ff]|[Nn][Aa][Nn])"
_NUMBER_OR_WORD = {
    "float": re.compile(_FLOAT, re.ASCII),
    "int": re.compile(rf"[+-]?{_INT}", re.ASCII),
    "bool": re.compile(r"true|false", re.IGNORECASE),
    "null": re.compile(r"null", re.IGNORECASE),
}
# One piece of an unquoted value.
_PIECE = re.compile(
    r"(?P<interpolation>\$\{[^}]+\})|(?P<escaped>(?:\\[\\()\[\]{}:=, \t])+)"
    r"|(?P<plain>[A-Za-z0-9_/\-\\+.$%*@?|]+?(?=\\[\\()\[\]{}:=, \t]|\$\{|[^A-Za-z0-9_/\-\\+.$%*@?|]|$))"
    r"|(?P<colon>[ \t]*:[ \t]*)|(?P<blank>[ \t]+)",
    re.ASCII,
)
_QUOTED = re.compile(r"'((?:\\\\)*|.*?[^\\](?:\\\\)*)'|\"((?:\\\\)*|.*?[^\\](?:\\\\)*)\"", re.DOTALL)
_FUNCTION = re.compile(rf"({_ID})[ \t]*\(", re.ASCII)
# What Hydra registers (hydra/core/override_parser/overrides_parser.py: create_functions).
_FUNCTIONS = frozenset(
    {
        "bool",
        "choice",
        "extend_list",
        "float",
        "glob",
        "int",
        "interval",
        "json_str",
        "range",
        "shuffle",
        "sort",
        "str",
        "tag",
    }
)
_DEEPEST = 50


@dataclass(frozen=True)
class Override:
    """A parsed override: `sign` precedes `key`; `package` follows `@`, None without it.

    `value` is the right side as a Python value: None, bool, int, float, str, list or dict; None for `~key`
    too. `several` means that it lists values for a sweep (`a=1,2`), which a single run refuses. `computed`
    means that a function such as `choice(...)` makes the value, which is not followed.
    """

    sign: Sign
    key: str
    value: Any
    package: str | None = None
    several: bool = False
    computed: bool = False


class OverrideError(Exception):
    """The text is not an override. The message states why."""


def parse_override(text: str) -> Override:
    """Parse an override. Raises OverrideError where Hydra would refuse it."""
    match = _KEY.match(text)
    sign: Any = match[1] if match else ""
    rest = text[match.end() :] if match else text
    if not match or (not match[2] and match[3] is None):
        raise OverrideError("it does not begin with the name of a setting")
    if not rest and sign == "~":
        return Override(sign, match[2], None, match[3])
    if not rest.startswith("="):
        if not rest:
            raise OverrideError("it has no `=`")
        raise OverrideError(f"`{rest[0]}` cannot be part of a name")
    reader = _Values(rest[1:].lstrip(" \t"))
    if not reader.text:
        return Override(sign, match[2], "", match[3])
    values = [reader.element()]
    while reader.take(","):
        values.append(reader.element())
    if reader.at < len(reader.text):
        raise OverrideError(f"`{reader.text[reader.at]}` must be quoted in a value")
    several = len(values) > 1
    return Override(
        sign, match[2], values if several else values[0], match[3], several=several, computed=reader.computed
    )


class _Values:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.computed = False

    def blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def take(self, sign: str) -> bool:
        """Skip a sign, and the blanks around it."""
        before = self.at
        self.blanks()
        if self.text.startswith(sign, self.at):
            self.at += len(sign)
            self.blanks()
            return True
        self.at = before
        return False

    def element(self) -> Any:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise OverrideError("it is nested too deeply")
        try:
            return self._element()
        finally:
            self.depth -= 1

    def _element(self) -> Any:
        if self.at >= len(self.text):
            raise OverrideError("a value is missing at its end")
        sign = self.text[self.at]
        if sign == "[":
            return self.list_()
        if sign == "{":
            return self.dict_()
        if sign in "'\"":
            return self.quoted()
        if function := _FUNCTION.match(self.text, self.at):
            if function[1] not in _FUNCTIONS:
                raise OverrideError(
                    f"`{function[1]}(` is not a function of Hydra: `(` must be quoted in a value"
                )
            return self.function()
        return self.primitive(colons=True)

    def list_(self) -> list[Any]:
        self.take("[")
        found: list[Any] = []
        if self.take("]"):
            return found
        while True:
            found.append(self.element())
            if self.take("]"):
                return found
            if not self.take(","):
                raise OverrideError(self.unexpected("a list"))

    def dict_(self) -> dict[str, Any]:
        self.take("{")
        found: dict[str, Any] = {}
        if self.take("}"):
            return found
        while True:
            if self.text[self.at : self.at + 1] in ("'", '"'):
                raise OverrideError("the keys of a dictionary must not be quoted")
            key = self.primitive(colons=False)
            if not self.take(":"):
                raise OverrideError(self.unexpected("a dictionary"))
            found["null" if key is None else str(key)] = self.element()
            if self.take("}"):
                return found
            if not self.take(","):
                raise OverrideError(self.unexpected("a dictionary"))

    def unexpected(self, where: str) -> str:
        if self.at >= len(self.text):
            return f"{where} is not closed"
        return f"`{self.text[self.at]}` is not expected in {where}"

    def quoted(self) -> str:
        match = _QUOTED.match(self.text, self.at)
        if not match:
            raise OverrideError("a quote is not closed")
        self.at = match.end()
        quote = match[0][0]
        inside = match[1] if match[1] is not None else match[2]
        # Backslashes before a quote are escapes, others are literal.
        return re.sub(
            rf"(\\*){quote}|(\\+)$",
            lambda found: (
                found[1][: len(found[1]) // 2] + quote
                if found[1] is not None
                else found[2][: len(found[2]) // 2]
            ),
            inside,
        )

    def function(self) -> None:
        """Skip `name(...)`: casts and sweeps."""
        self.computed = True
        depth = 0
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            depth += (sign == "(") - (sign == ")")
            if sign == ")" and depth == 0:
                return
        raise OverrideError("a `(` is not closed")

    def primitive(self, *, colons: bool) -> Any:
        start = self.at
        pieces: list[tuple[str, str]] = []
        while match := _PIECE.match(self.text, self.at):
            kind = match.lastgroup or ""
            if (kind == "colon" and not colons) or (kind == "interpolation" and not colons):
                break
            pieces.append((kind, match[0]))
            self.at = match.end()
        while pieces and pieces[-1][0] == "blank":
            pieces.pop()
        if not pieces:
            if start >= len(self.text):
                raise OverrideError("a value is missing at its end")
            raise OverrideError(f"`{self.text[start]}` must be quoted in a value")
        if len(pieces) == 1 and pieces[0][0] == "plain":
            return typed(pieces[0][1])
        return "".join(re.sub(r"\\(.)", r"\1", text) if kind == "escaped" else text for kind, text in pieces)


def typed(text: str) -> Any:
    """Return a number, a truth value or null where the text is one.

    Raises OverrideError for a number with more digits than Python converts.
    """
    if _NUMBER_OR_WORD["int"].fullmatch(text):
        try:
            return int(text)
        except ValueError as error:
            raise OverrideError("a number has too many digits") from error
    if _NUMBER_OR_WORD["float"].fullmatch(text):
        return float(text)
    if _NUMBER_OR_WORD["bool"].fullmatch(text):
        return text.lower() == "true"
    if _NUMBER_OR_WORD["null"].fullmatch(text):
        return None
    return text
