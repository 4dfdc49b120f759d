"""What ends the following of code: an exception that is certain, a result, or code that is not understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LONGEST = 300  # characters of a message


@dataclass(frozen=True)
class Refusal:
    """What is raised: type and message, place as "path:line", condition, and the keys it depends on.

    `around` are the keys of the conditions around that one.
    """

    raised: str
    text: str
    read_from: str
    condition: str
    keys: tuple[str, ...]
    around: tuple[str, ...] = ()


class RefusedError(Exception):
    """The followed code raises for certain."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class NotFollowedError(Exception):
    """It cannot be determined what the code does next."""


class ReturnedError(Exception):
    """A function returns this value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class LoopLeftError(Exception):
    """The rest of a loop's body may not run."""
