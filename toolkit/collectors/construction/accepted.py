"""The settings with which construction accepts the job, as a fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A key and its other value; `left_out` removes the script's own word, so that verl's default counts."""

    key: str
    value: Any = None
    left_out: bool = False


@dataclass(frozen=True)
class Accepted:
    """The nearest `settings` with which no stage of the construction fails, () if none were found.

    `tried` configurations were built in `seconds`. `left` is the fault for which no setting helped.

    `unclear` are the names of which the value at fault is a part: any of them may be meant.
    """

    settings: tuple[Setting, ...] = ()
    tried: int = 0
    seconds: float = 0.0
    left: str = ""
    unclear: tuple[str, ...] = ()
