"""Values in the syntax of Hydra's command line: the inverse of `hydra.grammar`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What Hydra's grammar accepts without quotes: https://hydra.cc/docs/advanced/override_grammar/basic/
_BARE = re.compile(r"[\w./+-]+", re.ASCII)


def word(key: str, value: Any, sign: str = "") -> str:
    """Return an override, such as `++a.b=[1,'x']`."""
    return f"{sign}{key}={written(value)}"


def written(value: Any) -> str:
    """Return a Python value in Hydra's grammar.

    Texts are always quoted, so that none is parsed as a number or a list.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return _quoted(value, "'")
    return str(value)


def bare(text: str) -> str:
    """Return a text without quotes if Hydra accepts it, otherwise in double quotes.

    Shell words can contain double quotes in single ones.
    """
    return text if _BARE.fullmatch(text) else _quoted(text, '"')


def _quoted(text: str, quote: str) -> str:
    """Return a text in quotes.

    In quotes, Hydra 1.3 treats a backslash as an escape only before a quote or the end.
    """
    escaped = re.sub(
        rf"(\\*)({quote}|\Z)", lambda found: found[1] * 2 + (f"\\{quote}" if found[2] else ""), text
    )
    return f"{quote}{escaped}{quote}"
