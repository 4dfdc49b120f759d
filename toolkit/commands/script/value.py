"""A value of a variant as Hydra reads it, and as a word of a shell script."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from verl_doctor.toolkit.commands.script.variant import Wish

_PLAIN = re.compile(r"[\w/\-+.$%*@?|]+", re.ASCII)  # what Hydra takes without quotes
_SPECIAL = re.compile(r"([^\w@%+=:,./-])", re.ASCII)  # what a shell may take for something else


def as_written(value: Any, quote: str = '"') -> str:
    """A value in Hydra's grammar."""
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
    """In quotes, where only a quote and the backslashes before it mean something else than themselves."""
    if not quote:
        return value
    escaped = re.sub(rf"(\\*)({quote}|$)", lambda found: found[1] * 2 + (found[2] and f"\\{found[2]}"), value)
    return f"{quote}{escaped}{quote}"


def in_shell(value: Any, *, nested: bool) -> str:
    """A value as the shell wants it. Quotes would end a string around it: there, what means something to a shell is escaped."""
    return _SPECIAL.sub(r"\\\1", as_written(value, "")) if nested else shlex.quote(as_written(value))


def override(wish: Wish, *, nested: bool) -> str:
    """A word that asks for what is wished."""
    return f"{wish.sign}{wish.key}={in_shell(wish.value, nested=nested)}"
