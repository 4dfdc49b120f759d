"""The job's setting behind an exception: the key that the message names, or whose value it repeats."""

from __future__ import annotations

import re
from collections.abc import Iterable

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord

_SHORTEST = 4  # characters of a value that is searched for in a message
# A section that exists because another setting requires it.
_REQUIRED_BY = {"critic": "algorithm.adv_estimator"}


def setting_of(
    text: str, key: str, usual: Iterable[str], configuration: Configuration
) -> tuple[str, OverrideWord | None]:
    """Return the key, and the word of the command that sets it.

    `usual` are a stage's usual keys, the most likely first.

    A message may name a key by its last parts, or repeat its value.
    """
    overrides = [word for word in configuration.overrides if word.fate in ("applied", "chosen") and word.key]
    if key:
        by = _REQUIRED_BY.get(key.partition(".")[0], "")
        return key, _of_key(key, overrides) or next((word for word in overrides if word.key == by), None)
    named = [word for word in overrides if _names(text, word.key)]
    if named:
        longest = max(named, key=lambda word: len(word.key))
        return longest.key, longest
    likely = [word for name in usual for word in overrides if word.key == name]
    repeated = [
        word for word in (*likely, *overrides) if isinstance(word.value, str) and _repeats(text, word.value)
    ]
    if repeated:
        best = max(repeated, key=lambda word: len(str(word.value)))
        return best.key, best
    return (likely[0].key, likely[0]) if likely else ("", None)


def _of_key(key: str, overrides: list[OverrideWord]) -> OverrideWord | None:
    """Return the word that sets the key, or a key above or below it."""
    same = [word for word in overrides if word.key == key]
    near = [word for word in overrides if word.key.startswith(f"{key}.") or key.startswith(f"{word.key}.")]
    found = same or near
    return found[-1] if found else None


def _names(text: str, key: str) -> bool:
    """Return whether a text contains the key, its last two parts, or its last part if no ordinary word."""
    parts = key.split(".")
    tail = ".".join(parts[-2:])
    last = parts[-1]
    return tail in text or ("_" in last and re.search(rf"\b{re.escape(last)}\b", text) is not None)


def _repeats(text: str, value: str) -> bool:
    return len(value) >= _SHORTEST and value in text
