"""Limits for the rules and fixes of plugins: time, number and size of what they return. Collectors have a limit of time anyway.

Each call runs in a thread of its own, which is abandoned after the limit. There, KeyboardInterrupt is the plugin's and not Ctrl-C.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from verl_doctor.toolkit.change import Fix
from verl_doctor.toolkit.rule import Check, Finding

T = TypeVar("T")

LIMIT = 20.0
"""Seconds that one call may take."""

MOST_FINDINGS = 10_000
MOST_CHARACTERS = 1_000_000


class PluginLimitError(Exception):
    """A plugin exceeded a limit, or tried to stop the run."""


def limited(part: Check | Fix) -> Check | Fix:
    """Return the same part, whose functions run within the limits."""
    if isinstance(part, Fix):
        return dataclasses.replace(part, plan=_within(part.plan))
    return dataclasses.replace(
        part,
        judge=_within(part.judge, _findings),
        applies=part.applies and _within(part.applies),
        paths=part.paths and _within(part.paths),
        unjudged=part.unjudged and _within(part.unjudged),
    )


def _read_out(found: Any) -> Any:
    """Return what a function yields as a tuple: read later, it would be outside the limits."""
    return tuple(_counted(found, "items")) if isinstance(found, Iterator) else found


def _counted(found: Iterable[T], what: str) -> Iterator[T]:
    for number, each in enumerate(found, 1):
        if number > MOST_FINDINGS:
            raise PluginLimitError(f"it yields more than {MOST_FINDINGS:,} {what}")
        yield each


def _within(function: Callable[..., Any], read: Callable[[Any], Any] = _read_out) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        outcome: Future[Any] = Future()

        def work() -> None:
            try:
                outcome.set_result(read(function(*arguments, **named)))
            except KeyboardInterrupt:
                outcome.set_exception(PluginLimitError("it raises KeyboardInterrupt"))
            except BaseException as error:  # noqa: BLE001 - raised again where it was called
                outcome.set_exception(error)

        threading.Thread(target=work, name="plugin", daemon=True).start()
        try:
            return outcome.result(LIMIT)
        except FutureTimeout:
            if outcome.done():
                raise
            raise PluginLimitError(f"it did not end within {LIMIT:.0f} s") from None

    return run


def _findings(found: Iterable[Finding]) -> tuple[Finding, ...]:
    room = _Room()
    return tuple(room.plain(finding) for finding in _counted(found, "findings"))


class _Room:
    """How many characters a rule may still return."""

    def __init__(self) -> None:
        self._left = MOST_CHARACTERS

    def plain(self, value: Any) -> Any:
        """Return a value whose texts are plain ones: a subclass of str may raise wherever it is shown."""
        if isinstance(value, str):
            text = str.__str__(value)
            self._left -= str.__len__(text)
            if self._left < 0:
                raise PluginLimitError(f"its findings have more than {MOST_CHARACTERS:,} characters")
            return text
        if type(value) is tuple:
            return tuple(map(self.plain, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = (field.name for field in dataclasses.fields(value) if field.init)
            return dataclasses.replace(value, **{name: self.plain(getattr(value, name)) for name in fields})
        return value
