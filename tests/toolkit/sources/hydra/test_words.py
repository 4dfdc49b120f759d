from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from verl_doctor.toolkit.sources.hydra.grammar import parse_override
from verl_doctor.toolkit.sources.hydra.words import word

plain = some.none() | some.booleans() | some.integers() | some.text("ab'\\ ,[]{}:=$", max_size=8)


@pytest.mark.slow
@given(plain | some.lists(plain, max_size=3))
def test_written_word_is_parsed_back(value: Any) -> None:
    assert parse_override(word("a.b", value, "++")).value == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.01, "a=0.01"), ("1", "a='1'"), ({}, "a={}"), ({"x": [True]}, "a={x:[true]}"), (None, "a=null")],
)
def test_values_are_written_in_hydra_syntax(value: Any, expected: str) -> None:
    assert word("a", value) == expected
