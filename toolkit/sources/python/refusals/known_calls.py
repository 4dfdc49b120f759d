"""Calls whose results are computed, not followed: Python's own functions, and configuration reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.settings import Settings
from verl_doctor.toolkit.sources.python.refusals.values import Made, Section, is_plain

_LONGEST = 10_000


def _short_range(*given: int) -> range:
    """Return a range. Raises ValueError for one that takes long to go through.

    A wrong setting may make it.
    """
    numbers = range(*given)
    if numbers and abs(numbers[-1] - numbers[0]) > _LONGEST * abs(numbers.step):
        raise ValueError
    return numbers


BUILT_IN: Mapping[str, Callable[..., Any]] = {"range": _short_range} | {
    function.__name__: function
    for function in (
        len,
        min,
        max,
        sum,
        abs,
        int,
        float,
        bool,
        str,
        sorted,
        list,
        tuple,
        set,
        any,
        all,
    )
}
_METHODS = frozenset(
    {"lower", "upper", "strip", "startswith", "endswith", "split", "items", "keys", "values"}
)
NOTHING: Final = object()
"""The result of a call that is not computed here."""


def method_result(settings: Settings, owner: Any, method: str, given: Sequence[Any]) -> Any:
    """Return the result of a method of a section, an object or a plain value; `NOTHING` if none here."""
    default = given[1] if len(given) > 1 else None
    if method == "get" and given and isinstance(given[0], str):
        if isinstance(owner, Section):
            return selected(settings, owner, given[0], default)
        if isinstance(owner, Made):
            return settings.field_of(owner, given[0]) if given[0] in owner.fields else UNCLEAR
        if isinstance(owner, dict):
            return owner.get(given[0], default)
    if (
        method in _METHODS
        and isinstance(owner, (str, dict))
        and is_plain(owner)
        and all(map(is_plain, given))
    ):
        try:
            found = getattr(owner, method)(*given)
        except (AttributeError, TypeError, ValueError):
            return UNCLEAR
        return found if isinstance(found, (str, bool)) else list(found)
    return NOTHING


def attribute_of(settings: Settings, function: str, given: Sequence[Any]) -> Any:
    """Return the result of `getattr` or `hasattr`."""
    owner, attribute = given[0], given[1]
    if isinstance(owner, Section):
        found = settings.value_in(owner, attribute)
        if function == "hasattr":
            return found is not MISSING
        return (given[2] if len(given) > 2 else UNCLEAR) if found is MISSING else found
    if isinstance(owner, Made) and attribute in owner.fields:
        return True if function == "hasattr" else settings.field_of(owner, attribute)
    return UNCLEAR


def selected(settings: Settings, section: Section, name: Any, default: Any) -> Any:
    """Return the result of `OmegaConf.select` and of a section's `get`."""
    if not isinstance(name, str):
        return UNCLEAR
    found = settings.value_in(section, name)
    return default if found is MISSING else found
