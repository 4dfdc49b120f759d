"""Whether a chat template looks as if Jinja refuses it, judged without Jinja.

A doubt costs no more than a look by Jinja itself.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"\{%[-+]?\s*(\w+)(.*?)[-+]?%\}", re.DOTALL)
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_BEGINS = re.compile(r"\{[{%#]")
_ENDS = re.compile(r"[%}#]\}")
_WHOLE = re.compile(rf"\{{#.*?#\}}|\{{(?:\{{|%)(?:{_TEXT.pattern}|[^'\"])*?(?:\}}\}}|%\}})", re.DOTALL)
_BLOCKS = frozenset({"for", "if", "macro", "call", "filter", "generation"})
_SINGLE = frozenset({"else", "elif", "set", "break", "continue"})
_FILTER = re.compile(r"\|\s*(\w+)")
_FILTERS = frozenset(
    {
        "trim",
        "tojson",
        "length",
        "count",
        "join",
        "items",
        "default",
        "d",
        "first",
        "last",
        "list",
        "string",
        "upper",
        "lower",
        "safe",
        "selectattr",
        "rejectattr",
        "select",
        "reject",
        "map",
        "replace",
        "int",
        "float",
        "indent",
        "capitalize",
        "title",
        "dictsort",
        "sort",
        "reverse",
        "unique",
        "abs",
        "round",
        "sum",
        "min",
        "max",
        "e",
        "escape",
        "format",
        "batch",
        "slice",
        "truncate",
        "wordwrap",
    }
)


def looks_doubtful(text: str) -> bool:
    """Return whether a template may have a syntax error.

    The signs are blocks, brackets or quotes that do not match, or an uncommon name.
    """
    opened: list[str] = []
    at = 0
    while begins := _BEGINS.search(text, at):
        found = _WHOLE.match(text, begins.start())
        if found is None or _ENDS.search(text, at, begins.start()):
            return True
        at = found.end()
        part = "" if found[0].startswith("{#") else _TEXT.sub("0", found[0])
        if any(part.count(left) != part.count(right) for left, right in ("()", "[]", "{}")):
            return True
        if any(name not in _FILTERS for name in _FILTER.findall(part)):
            return True
        if (tag := _TAG.match(part)) and _is_strange(tag[1], tag[2], opened):
            return True
    return bool(opened) or _ENDS.search(text, at) is not None


def _is_strange(name: str, rest: str, opened: list[str]) -> bool:
    """Return whether a tag is uncommon or ends another block than the last. `opened` are the open blocks."""
    if name in _BLOCKS or (name == "set" and "=" not in rest):
        opened.append(name)
        return False
    if name.startswith("end"):
        return not opened or opened.pop() != name[3:]
    return name not in _SINGLE
