"""Which regular expressions of a user are matched here."""

from __future__ import annotations

import re

import pytest

from verl_doctor.toolkit.sources.pattern import is_quick, lacks


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(?:.|.|.|.)*Z",
        r"(?:a?){50}",
        r"((a|b)*c)*",
        r".*.*.*.*.*.*",
        r"(?x) a # (",
        r"(?P<x>a)(?P=x)",
        r"(?(1)a|b)",
        "(",
        ")",
        "a" * 1001,
    ],
)
def test_pattern_that_may_take_years_or_is_not_understood_is_not_quick(pattern: str) -> None:
    assert not is_quick(pattern, 80)
    assert not lacks(pattern, "Z")


@pytest.mark.parametrize(
    ("pattern", "signs"),
    [
        (r"<answer>(.*?)</answer>", "<answer>/"),
        (r"#### (\-?[0-9\.\,]+)", "# "),
        (r"\\boxed\{(.*)\}", "\\boxed{}"),
        (r"model\.layers\.\d+\.(self_attn|mlp)\.(q|k|v|o)_proj", "model.layers_proj"),
        (r"a{2,3}?b+c?", "b"),
        (r"(?i)^K$", "k"),
        (r"a|b", ""),
        (r"[[a]&&b]", "&b]"),
        (r".*\s[^]a]x{2}", ""),
    ],
)
def test_pattern_lacks_a_text_without_one_of_its_signs(pattern: str, signs: str) -> None:
    assert is_quick(pattern, 15)
    every = "".join(map(chr, range(32, 127)))
    assert not lacks(pattern, every)
    assert {
        sign for sign in every if lacks(pattern, every.replace(sign.lower(), "").replace(sign.upper(), ""))
    } == set(signs.lower() + signs.upper())


def test_pattern_that_lacks_a_text_does_not_match_it() -> None:
    """All patterns of up to three parts: what is claimed without matching is what the matcher finds."""
    parts = ("a", "b", ".", "*", "+?", "?", "|", "(", ")", "[ab]", r"\.", r"\d", "{2}", "(?:")
    for first in parts:
        for second in parts:
            for third in parts:
                pattern = first + second + third
                try:
                    form = re.compile(pattern, re.IGNORECASE)
                except re.error:
                    continue
                assert not (lacks(pattern, "A.1") and form.search("A.1")), pattern
