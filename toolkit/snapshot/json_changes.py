"""The changes from one JSON value to a similar one, by JSON pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Changes:
    """The values that are `put` at pointers, and the keys that are removed.

    The pointer "" is the whole value.
    """

    put: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def changes(base: Any, value: Any) -> Changes:
    """Return the changes from `base` to `value`. Lists of different lengths are replaced as a whole."""
    found = list(_steps(base, value, ""))
    return Changes(
        {pointer: new for pointer, exists, new in found if exists},
        tuple(pointer for pointer, exists, _ in found if not exists),
    )


def changed(base: Any, these: Changes) -> Any:
    """Change `base` in place and return it. Raises ValueError if a pointer leads nowhere."""
    for pointer in these.without:
        place, key = _place(base, pointer)
        if not isinstance(place, dict) or place.pop(key, _NOTHING) is _NOTHING:
            raise ValueError(f"nothing is at {pointer:.80}")
    for pointer, value in these.put.items():
        if not pointer:
            return value
        place, key = _place(base, pointer)
        place[key] = value
    return base


_NOTHING = object()


def _steps(base: Any, value: Any, pointer: str) -> Iterator[tuple[str, bool, Any]]:
    """Yield each place that differs, whether a value exists there afterwards, and the value."""
    if isinstance(base, dict) and isinstance(value, dict):
        for key in base.keys() - value.keys():
            yield f"{pointer}/{_escaped(key)}", False, None
        for key, new in value.items():
            below = f"{pointer}/{_escaped(key)}"
            yield from _steps(base[key], new, below) if key in base else ((below, True, new),)
    elif isinstance(base, list) and isinstance(value, list) and len(base) == len(value):
        for index, (old, new) in enumerate(zip(base, value, strict=True)):
            yield from _steps(old, new, f"{pointer}/{index}")
    elif type(base) is not type(value) or base != value:  # 1, 1.0 and true are equal only in Python
        yield pointer, True, value


def _place(base: Any, pointer: str) -> tuple[Any, Any]:
    """Return the object or list that contains a pointer's target, and its key there.

    Raises ValueError if there is none.
    """
    first, *keys = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]
    place: Any = base
    key: Any = None
    for number, step in enumerate(keys):
        key = int(step) if isinstance(place, list) and step.isdecimal() else step
        if isinstance(place, list) and not (isinstance(key, int) and key < len(place)):
            break
        if number == len(keys) - 1 and isinstance(place, (dict, list)) and not first:
            return place, key
        if isinstance(place, dict) and key not in place:
            break
        if not isinstance(place, (dict, list)):
            break
        place = place[key]
    raise ValueError(f"{pointer:.80} leads nowhere")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
