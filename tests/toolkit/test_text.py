"""Saying things briefly."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.text import clipped, ranges


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 0], "0, 1"),
        ([0, 1, 2], "0-2"),
        (range(8), "0-7"),
        ([0, 2, 3, 4, 9, 10, 12], "0, 2-4, 9, 10, 12"),
        ([5, 5, 5], "5"),
    ],
)
def test_numbers_that_follow_each_other(numbers: list[int], said: str) -> None:
    assert ranges(numbers) == said


@pytest.mark.parametrize(("words", "said"), [("12345678", "12345678"), ("123456789", "12345...")])
def test_what_is_too_long_says_that_it_goes_on(words: str, said: str) -> None:
    assert clipped(words, 8) == said
