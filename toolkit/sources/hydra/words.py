"""Values in the syntax of Hydra's command line: the inverse of `hydra.grammar`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def word(key: str, value: Any, sign: str = "") -> str:
    """Return an override, such as `++a.b=[1,'x']`."""
    return f"{sign}{key}={written(value)}"


def written(value: Any) -> str:
    """Return a Python value in Hydra's grammar. Texts are always quoted, so that none is parsed as a number or a list."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return f"'{_escaped(value)}'"
    return str(value)


def _escaped(text: str) -> str:
    """Escape a text for quotes, in which Hydra 1.3 treats a backslash as an escape only before a quote or the end."""
    return re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
