"""The stages of the construction: what a stage is, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_doctor.toolkit.probes.construction.job import Job


class NotHereError(Exception):
    """This release of verl, or of the engine, has no such part. The message names it."""


class NotNeededError(Exception):
    """This job has no such part. The message names it."""


class NotJudgedError(Exception):
    """The stage cannot be judged here. The message is the reason."""


class OverTimeError(BaseException):
    """A stage exceeded its time limit. No handler for `Exception` stops it."""


@dataclass(frozen=True)
class Stage:
    """One stage.

    `needs` are the stages that must have succeeded, `seconds` is its time limit, `users` is whether it runs
    the user's code, and `imports` whether most of its time goes into imports.
    """

    name: str
    run: Callable[[Job], None]
    needs: tuple[str, ...]
    seconds: float
    users: bool
    imports: bool = False


STAGES: dict[str, Stage] = {}
"""All stages in the order in which they run."""


def stage(
    name: str, *needs: str, seconds: float = 60.0, users: bool = False, imports: bool = False
) -> Callable[[Callable[[Job], None]], Callable[[Job], None]]:
    """Add a function to the table. It raises verl's errors, `NotHereError` or `NotJudgedError`."""

    def add(function: Callable[[Job], None]) -> Callable[[Job], None]:
        STAGES[name] = Stage(name, function, needs, seconds, users, imports)
        return function

    return add
