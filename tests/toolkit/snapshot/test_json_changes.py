"""JSON changes: applying the differences restores the value, and nothing else changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.snapshot.json_changes import Changes, changed, changes

KEYS = st.text(alphabet="ab/~01é", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(allow_nan=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=cases(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, VALUES)
def test_applying_changes_to_the_base_gives_the_value(base: object, value: object) -> None:
    made = changed(json.loads(json.dumps(base)), changes(base, value))
    assert json.dumps(made, sort_keys=True) == json.dumps(value, sort_keys=True)


@settings(max_examples=cases(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_equal_values_have_no_changes(value: object) -> None:
    assert changes(value, json.loads(json.dumps(value))) == Changes()


def test_only_differences_are_stored() -> None:
    base = {"is": {"free": 1, "size": 10, "of": [{"t": 40}, {"t": 41}], "gone": 0}}
    value = {"is": {"free": 2, "size": 10, "of": [{"t": 40}, {"t": 50}], "a/b": True}}
    assert changes(base, value) == Changes({"/is/free": 2, "/is/of/1/t": 50, "/is/a~1b": True}, ("/is/gone",))


@pytest.mark.parametrize("pointer", ["nowhere", "/a/b", "/list/7", "/list/x", "/list/-1", "/text/0"])
def test_invalid_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ValueError, match="leads nowhere"):
        changed({"list": [1], "text": "abc"}, Changes({pointer: 1}))


def test_missing_key_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="nothing is at /b"):
        changed({"a": 1}, Changes(without=("/b",)))
