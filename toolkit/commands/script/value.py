"""A variant's value in Hydra's grammar and as a shell word."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from verl_doctor.toolkit.commands.script.variant import ValueChange

_PLAIN = re.compile(r"[\w/\-+.$%*@?|]+", re.ASCII)  # what Hydra accepts without quotes
_SPECIAL = re.compile(r"([^\w@%+=:,./-])", re.ASCII)  # what a shell may interpret


def as_written(value: Any, quote: str = '"') -> str:
    """Return a value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(_text(str(element), quote) for element in value)}]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else _text(value, quote)
    return json.dumps(value)


def _text(value: str, quote: str) -> str:
    """Return the text in quotes, where only quotes and the backslashes before them are escaped."""
    if not quote:
        return value
    escaped = re.sub(rf"(\\*)({quote}|$)", lambda found: found[1] * 2 + (found[2] and f"\\{found[2]}"), value)
    return f"{quote}{escaped}{quote}"


def in_shell(value: Any, *, nested: bool) -> str:
    """Return a value as a shell word.

    Quotes would end an enclosing string: inside one, special characters are escaped instead.
    """
    return _SPECIAL.sub(r"\\\1", as_written(value, "")) if nested else shlex.quote(as_written(value))


def override(change: ValueChange, *, nested: bool) -> str:
    """Return the override that sets the requested value."""
    return f"{change.sign}{change.key}={in_shell(change.value, nested=nested)}"
