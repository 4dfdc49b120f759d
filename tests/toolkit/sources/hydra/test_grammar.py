"""Override grammar as in Hydra. `test_hydra_real.py` compares with Hydra itself."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_doctor.toolkit.sources.hydra.grammar import OverrideError, parse_override


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=-1_000", -1000),
        ("a=01", "01"),
        ("a=1e-6", 1e-6),
        ("a=0.", 0.0),
        ("a=.5", 0.5),
        ("a=TRUE", True),
        ("a=Null", None),
        ("a=", ""),
        ("a=None", "None"),
        ("a= x y ", "x y"),
        ("a='x, y'", "x, y"),
        ('a="it\'s"', "it's"),
        ("a='it\\'s'", "it's"),
        ("a=/m/Qwen2.5-7B", "/m/Qwen2.5-7B"),
        ("a=${b.c}/x", "${b.c}/x"),
        ("a=b:c", "b:c"),
        ("a=x\\,y", "x,y"),
        ("a=[]", []),
        ("a=[1, [x], 'y z']", [1, ["x"], "y z"]),
        ("a={b: 1, c d:{e:null}}", {"b": 1, "c d": {"e": None}}),
        ("a=b c", "b c"),
    ],
)
def test_values(text: str, value: object) -> None:
    found = parse_override(text)
    assert (found.key, found.value) == ("a", value)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("text", "sign", "key", "package"),
    [
        ("a.b.c=1", "", "a.b.c", None),
        ("+a=1", "+", "a", None),
        ("++a.b=1", "++", "a.b", None),
        ("~a.b", "~", "a.b", None),
        ("actor@a.b=x", "", "actor", "a.b"),
        ("a/b@c=x", "", "a/b", "c"),
        ("$a.0=1", "", "$a.0", None),
    ],
)
def test_keys(text: str, sign: str, key: str, package: str | None) -> None:
    found = parse_override(text)
    assert (found.sign, found.key, found.package) == (sign, key, package)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=~/x", "`~` must be quoted"),
        ("a=b=c", "`=` must be quoted"),
        ("a=x(", "is not a function of Hydra"),
        ("a=[1,", "missing at its end"),
        ("a=[1", "a list is not closed"),
        ("a={'b': 1}", "must not be quoted"),
        ("a='x", "a quote is not closed"),
        ("a=é", "must be quoted"),
        ("a", "no `="),
        ("a[0]=1", "`[` cannot be part of a name"),
        (" ", "does not begin with the name"),
        ("--a=1", "does not begin with the name"),
        ("a=" + "[" * 500, "nested too deeply"),
        ("a=" + "9" * 5000, "too many digits"),
    ],
)
def test_invalid_overrides_are_refused(text: str, why: str) -> None:
    with pytest.raises(OverrideError, match=why.replace("[", r"\[")):
        parse_override(text)


def test_several_values_and_functions() -> None:
    assert parse_override("a=1,2").several
    assert parse_override("a=choice(1,2)").computed
    assert parse_override("a=[int(1)]").computed


@given(st.text(alphabet="ab1.=+~[]{},:'\"\\ $()@/-é\n", max_size=30))
def test_any_text_is_an_override_or_refused(text: str) -> None:
    with contextlib.suppress(OverrideError):
        parse_override(text)
