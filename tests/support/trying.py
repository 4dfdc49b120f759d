"""How often something is tried."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from support.environment import setting

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
LIMITS = (8.0, 60.0)
"""Seconds for what is to hang at one point, and how many where it has not even come to that point in so few."""
ROUNDS = int(setting("VERL_DOCTOR_TEST_ROUNDS", "1"))
"""How many times as many made-up cases are tried as usual."""
SEED = int(setting("VERL_DOCTOR_TEST_SEED", "0"))
"""Other cases are made up with another number; with the same one they are the same in every run."""
_TRIES = 5


def cases(number: int) -> int:
    """Return how many cases are made up where usually this many are."""
    return ROUNDS * number


def thorough(*values: Any) -> Any:
    """Return a parameter set of which only a thorough run makes a test: the usual one has others of its kind."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def sampled(names: Iterable[str]) -> list[Any]:
    """Return the names, of which the usual run tries one in eight, always the same ones."""
    return [name if zlib.crc32(name.encode()) % 8 == 0 else thorough(name) for name in names]


def unless_disturbed(test: Callable[..., None]) -> Callable[..., None]:
    """Try a test again that the rest of the machine may spoil: at any moment memory is taken, pages are pushed out, and threads held up.

    One that fails by a fault of the program fails each time.
    """

    @functools.wraps(test)
    def tried(*arguments: Any, **named: Any) -> None:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(AssertionError):
                return test(*arguments, **named)
        return test(*arguments, **named)

    return tried


def generate_from_nothing() -> None:
    """Keep Hypothesis from looking for constants in all modules that are loaded, a thousand where all tests run.

    They are not what the tests are about, and a seed would yield other cases where fewer files run.
    """
    providers: Any = sys.modules.get("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants
