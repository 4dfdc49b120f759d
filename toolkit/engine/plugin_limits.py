"""Limits for the rules and fixes of plugins: time, number and size of what they return.

Collectors have a limit of time anyway.

Each call runs in a thread of its own, which is abandoned after the limit. There, KeyboardInterrupt is the
plugin's and not Ctrl-C. What a rule yields is rebuilt from the declared fields alone, because a subclass
could do anything wherever it is read.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from dacite.types import is_instance

from verl_doctor.toolkit.change import Fix
from verl_doctor.toolkit.rule import (
    Check,
    Correction,
    Evidence,
    Finding,
    Location,
    Rewrite,
    Subject,
    Unjudged,
)

T = TypeVar("T")

LIMIT = 20.0
"""Seconds that one call may take."""

ALL_SLOW = 60.0
"""Seconds that all calls of a run may take together; those that end within a second do not count."""

MOST_FINDINGS = 10_000
MOST_CHARACTERS = 1_000_000
ALL_CHARACTERS = 5_000_000
"""What all rules of a run may return together."""

_QUICK = 1.0  # seconds
_DEEPEST = 50  # corrections within corrections
_SHAPES = (Finding, Evidence, Location, Subject, Correction, Rewrite, Unjudged)


class PluginLimitError(Exception):
    """A plugin exceeded a limit, or tried to stop the run."""


@dataclass
class Together:
    """What the plugins of a run may still use together."""

    seconds: float = ALL_SLOW
    characters: int = ALL_CHARACTERS


def limited(part: Check | Fix, together: Together | None = None) -> Check | Fix:
    """Return the same part, whose functions run within its limits and those of all plugins together."""
    within = functools.partial(_within, together=together or Together())
    if isinstance(part, Fix):
        return dataclasses.replace(part, plan=within(part.plan))
    return dataclasses.replace(
        part,
        judge=within(part.judge, _findings),
        applies=part.applies and within(part.applies, _plain),
        paths=part.paths and within(part.paths, _plain),
        unjudged=part.unjudged and within(part.unjudged, _plain),
    )


def _read_out(found: Any, _: Together) -> Any:
    """Return what a function yields or lists as a tuple: read later, it would be outside the limits."""
    return tuple(_counted(found, "items")) if isinstance(found, (Iterator, tuple, list, set, dict)) else found


def _counted(found: Iterable[T], what: str) -> Iterator[T]:
    for number, each in enumerate(found, 1):
        if number > MOST_FINDINGS:
            raise PluginLimitError(f"it yields more than {MOST_FINDINGS:,} {what}")
        yield each


def _within(
    function: Callable[..., Any], read: Callable[[Any, Together], Any] = _read_out, *, together: Together
) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        outcome: Future[Any] = Future()
        limit = min(LIMIT, together.seconds)
        if limit <= 0:
            raise PluginLimitError(f"the plugins of this run have used up their {ALL_SLOW:.0f} s")

        def work() -> None:
            try:
                outcome.set_result(read(function(*arguments, **named), together))
            except KeyboardInterrupt:
                outcome.set_exception(PluginLimitError("it raises KeyboardInterrupt"))
            except BaseException as error:  # noqa: BLE001 - raised again where it was called
                outcome.set_exception(error)

        begun = time.monotonic()
        threading.Thread(target=work, name="plugin", daemon=True).start()
        try:
            return outcome.result(limit)
        except FutureTimeout:
            if outcome.done():
                raise
            raise PluginLimitError(f"it did not end within {limit:.3g} s") from None
        finally:
            took = time.monotonic() - begun
            together.seconds -= took if took > min(_QUICK, limit) else 0.0

    return run


def _findings(found: Iterable[Finding], together: Together) -> tuple[Finding, ...]:
    room = _Room(together)
    return tuple(room.plain(finding) for finding in _counted(found, "findings"))


def _plain(found: Any, together: Together) -> Any:
    return _Room(together).plain(found)


def _refusal(value: Any, declared: Any) -> str:
    """Return why a field does not accept a value: the names that it accepts, or else the value's type."""
    choices = [
        declared,
        *get_args(declared),
    ]  # the names of `Literal[...]`, and those of `Literal[...] | None`
    if names := [name for choice in choices for name in get_args(choice) if isinstance(name, str)]:
        return f"is {str(value)[:60]!r}, which is none of {', '.join(names)}"
    return f"does not accept this {type(value).__name__}"


@functools.cache
def _declared(shape: type) -> dict[str, tuple[Any, frozenset[Any]]]:
    """Return the type of each field of a dataclass, and the classes that it names.

    For their values no more need be compared.
    """
    hints = get_type_hints(shape)
    return {
        name: (hint, frozenset((hint, *get_args(hint))) & {str, int, type(None)})
        for name, hint in hints.items()
    }


class _Room:
    """How many characters and items a call may still return."""

    def __init__(self, together: Together) -> None:
        self._left, self._items = MOST_CHARACTERS, MOST_FINDINGS * 10
        self._together = together

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a value of texts, numbers and declared fields alone.

        Whatever can be read through becomes a tuple.
        """
        if depth > _DEEPEST:
            raise PluginLimitError(f"what it returns is nested more than {_DEEPEST} deep")
        if value is None or type(value) in (int, float, bool):
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return int.__index__(value)
        for shape in _SHAPES:
            if isinstance(value, shape):
                return self._rebuilt(shape, value, depth)
        if isinstance(value, (tuple, list, set, frozenset, Iterator)):
            return tuple(self._each(value, depth))
        return self.plain(os.fspath(value), depth + 1) if isinstance(value, os.PathLike) else value

    def _rebuilt(self, shape: type, value: Any, depth: int) -> Any:
        fields = {}
        for name, (declared, usual) in _declared(shape).items():
            fields[name] = self.plain(getattr(value, name), depth + 1)
            if type(fields[name]) not in usual and not is_instance(fields[name], declared):
                raise TypeError(f"{shape.__name__}.{name} {_refusal(fields[name], declared)}")
        return shape(**fields)

    def _each(self, values: Iterable[Any], depth: int) -> Iterator[Any]:
        for value in values:
            self._items -= 1
            if self._items < 0:
                raise PluginLimitError(f"its findings list more than {MOST_FINDINGS * 10:,} items")
            yield self.plain(value, depth + 1)

    def _text(self, text: str) -> str:
        self._left -= len(text)
        self._together.characters -= len(text)
        if self._left < 0:
            raise PluginLimitError(f"its findings have more than {MOST_CHARACTERS:,} characters")
        if self._together.characters < 0:
            raise PluginLimitError(
                f"the findings of all plugins have more than {ALL_CHARACTERS:,} characters"
            )
        return text
