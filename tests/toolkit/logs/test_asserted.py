"""Conditions of assertions, in words."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs.asserted import chosen, in_words, operands


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("assert self.steps > 0", "steps must be greater than 0"),
        ("assert rows % parts == 0, (", "rows must be a multiple of parts"),
        ('assert rows % parts == 0, f"{rows} rows"', "rows must be a multiple of parts"),
        ("assert rows % parts != 1", "rows % parts must not be 1"),
        ("assert a.kind in ['x', 'y'], 'no'", "a.kind must be one of 'x', 'y'"),
        ("assert key in self.batch.keys()", "key must be in batch.keys()"),
        ("assert config.path is not None", "config.path must be set"),
        ("assert isinstance(row, dict)", "row must be a dict"),
        ("assert not self.is_open", "is_open must be empty or off"),
        ("assert ready", "ready must be set"),
        ("assert 0 < share <= 1", "0 must be less than share and share must be at most 1"),
        ("assert a is None or b == 2", "a must be None, or b must be 2"),
        ("assert isinstance(n, (int, float))", "n must be an int or a float"),
        ("assert isinstance(n, int | None), 'no'", "n must be an int or None"),
        ("assert isinstance(self.row, self.kinds)", ""),
        ("assert isinstance(row, torch.Tensor)", "row must be a torch.Tensor"),
        ("assert not isinstance(path, str)", "path must not be a str"),
        ("assert not isinstance(path, (str, Image))", "path must not be a str or an Image"),
        ("assert self.options['key']", "options['key'] must be set"),
        ("assert check(rows)", ""),
        ("assert len(items)", ""),
        ("assert ready and check(rows)", ""),
        ("assert not torch.isnan(x).any()", ""),
        ("assert not (a and b)", "a must be empty or off, or b must be empty or off"),
        (
            "assert not (not config.eager and config.free)",
            "config.eager must be set, or config.free must be empty or off",
        ),
        ("assert False, 'not reached'", ""),
        ("assert (", ""),
        ("raise ValueError", ""),
        ("", ""),
    ],
)
def test_condition_in_words(code: str, words: str) -> None:
    assert in_words(code) == words


def test_condition_that_is_too_long_is_not_repeated() -> None:
    assert in_words(f"assert {'x' * 200} > 0") == ""


def test_operands_are_whole_dotted_names() -> None:
    assert operands("assert config.actor.size % len(self.rows) == 0") == ("config.actor.size", "rows")
    assert operands("pass") == ()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("assert config.algorithm.kind in [Kind.GRPO], 'x'", ("config.algorithm.kind", "grpo")),
        ("assert config.mode == 'async'", ("config.mode", "async")),
        ("assert config.use_it == True", ("config.use_it", "True")),
        ("assert config.mode in ['a', 'b']", None),
        ("assert config.size == other.size", None),
        ("assert mode == 'async'", None),
        ("assert config.size > 1", None),
        ("pass", None),
    ],
)
def test_single_value_that_is_accepted(code: str, expected: tuple[str, str] | None) -> None:
    assert chosen(code) == expected
