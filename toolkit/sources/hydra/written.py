"""Writes values in Hydra's grammar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[\w./:+~@%-]+")


def as_written(value: Any) -> str:
    """A value in Hydra's grammar. A text is left as it is: what stands alone needs no quotes of Hydra's."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_inside(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_inside, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _inside(value: Any) -> str:
    """A value inside a list or a dictionary, where a text with other signs needs quotes."""
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return as_written(value)
