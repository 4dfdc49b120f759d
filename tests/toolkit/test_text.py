"""Saying things briefly."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.text import ranges


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
