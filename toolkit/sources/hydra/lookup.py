"""Reads a value from a composed configuration, following interpolations.

`${a.b}`, `${oc.select:a.b,default}` and a text with such parts are followed; other resolvers result in
UNDETERMINED.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.sources.hydra.grammar import OverrideError, typed

_WHOLE = re.compile(r"\$\{([^{}]*)\}")
_SELECT = re.compile(r"oc\.select:\s*([\w.]+)\s*(?:,\s*(.*))?", re.DOTALL)
_INNERMOST = re.compile(r"\$\{[^{}]*\}")
_LITERALS: Mapping[str, Any] = {"null": None, "true": True, "false": False, "{}": {}, "[]": []}
_DEEPEST = 20
# What takes long otherwise: texts in texts, each with many others in it.
_STEPS_OF_TEXT, _MOST_PARTS, _LONGEST = 5, 8, 100_000


class Undetermined:
    """A value that cannot be determined by reading."""

    def __repr__(self) -> str:
        return "UNDETERMINED"


class Missing:
    """The key does not exist."""

    def __repr__(self) -> str:
        return "MISSING"


UNDETERMINED = Undetermined()
MISSING = Missing()


def lookup(tree: Mapping[str, Any], key: str, depth: int = 0) -> Any:
    """Return the value of a dotted key, MISSING, or UNDETERMINED."""
    if depth > _DEEPEST:
        return UNDETERMINED
    value: Any = tree
    steps = key.split(".") if key else []
    for place, step in enumerate(steps):
        if isinstance(value, str):
            value = resolved(tree, value, ".".join(steps[:place]), depth)
        if value is UNDETERMINED:
            return UNDETERMINED
        if isinstance(value, (list, tuple)) and step.isascii() and step.isdigit():
            if int(step) >= len(value):
                return MISSING
            value = value[int(step)]
            continue
        if not isinstance(value, (dict, Mapping)) or step not in value:  # dict first: that is decided at once
            return MISSING
        value = value[step]
    return resolved(tree, value, key, depth)


def resolved(tree: Mapping[str, Any], value: Any, key: str, depth: int = 0) -> Any:
    """Return the value at `key`, following the interpolation that it may be."""
    if not isinstance(value, str) or "${" not in value:
        return value
    match = _WHOLE.fullmatch(value)
    if not match:
        return _selected(tree, value, key, depth)
    name = match[1].strip()
    if name.startswith("."):  # relative: one dot is the parent
        dots = len(name) - len(name.lstrip("."))
        steps = key.split(".")
        name = ".".join([*steps[: len(steps) - dots], name.lstrip(".")])
    if not re.fullmatch(r"[\w.]+", name):
        return _selected(tree, value, key, depth)
    found = lookup(tree, name, depth + 1)
    return UNDETERMINED if found is MISSING else found


def _selected(tree: Mapping[str, Any], value: str, key: str, depth: int) -> Any:
    """`${oc.select:key,default}`, whose default may be another interpolation."""
    match = _SELECT.fullmatch(value[2:-1].strip()) if value.startswith("${") and value.endswith("}") else None
    if not match:
        return _joined(tree, value, key, depth)
    found = lookup(tree, match[1], depth + 1)
    if found is not MISSING and found is not None:
        return found
    if found is None:
        return None
    default = (match[2] or "null").strip()
    if default.lower() in _LITERALS:
        return _LITERALS[default.lower()]
    if "${" in default:
        return resolved(tree, default, key, depth + 1)
    try:
        return typed(default.strip("'\""))
    except OverrideError:
        return UNDETERMINED


def _joined(tree: Mapping[str, Any], value: str, key: str, depth: int) -> Any:
    """A text with interpolations, such as `${data.folder}/train.parquet`: each is a text or a number."""
    if "\\" in value or _INNERMOST.fullmatch(value):
        return UNDETERMINED
    names = _INNERMOST.findall(value)
    if len(set(names)) > _MOST_PARTS or depth > _DEEPEST:
        return UNDETERMINED
    parts = {part: resolved(tree, part, key, depth + _STEPS_OF_TEXT) for part in names}
    if not parts or not all(type(part) in (str, int) for part in parts.values()):
        return UNDETERMINED
    if len(value) + sum(len(str(parts[name])) for name in names) > _LONGEST:
        return UNDETERMINED
    text = _INNERMOST.sub(lambda match: str(parts[match[0]]), value)
    return UNDETERMINED if "${" in text else text
