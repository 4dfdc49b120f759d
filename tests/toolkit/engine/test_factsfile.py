"""Facts in a file: every kind of fact comes back as it was."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest
from verl_doctor.toolkit.engine import factsfile, registry
from verl_doctor.toolkit.facts import Absent, Broken, Collector, Unknown, UnknownKind, collector
from verl_doctor.toolkit.system.secret import suggests_secret
from verl_doctor.toolkit.target import UsageError

PORTABLE = [part for part in registry.load().collectors if not part.local]
# File names that are easily damaged: letters beyond ASCII, the surrogates by which Python spells bytes that are no UTF-8, what ends a line
# for some readers. In the alphabet of `st.text` they would be six of a million characters.
SPECIAL = ("é", "a\udc80\udcff", "😀", "a\u2028b", "a\x00b")
# Not "@": with it a text may look like a user's name and password, and a name such as PIN marks a secret; a file of facts masks both.
NAMES = st.sampled_from(SPECIAL) | st.text(st.characters(exclude_characters="@"), max_size=6).filter(
    lambda name: not suggests_secret(name)
)
SCALARS: Mapping[Any, st.SearchStrategy[Any]] = {
    str: NAMES,
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    types.NoneType: st.none(),
}
# What a file of settings may hold: whatever JSON has a word for.
SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
# Facts that check what they are given.
CHECKED: Mapping[Any, st.SearchStrategy[Any]] = {
    TreeManifest: st.builds(
        TreeManifest,
        NAMES,
        NAMES,
        st.lists(
            NAMES.map(lambda name: f"file 644 1 a a {name.translate({47: 45, 0: 45})}-"), max_size=2
        ).map(tuple),
        st.booleans(),
    )
}


@dataclass(frozen=True)
class Shelf:
    books: int


@collector()
def shelf() -> Shelf:
    return Shelf(3)


@dataclass(frozen=True)
class Road:
    length: float


@collector()
def road() -> Road:
    return Road(1.5)


class OutOfReach(Absent):
    """A plugin's own kind of absence."""


@functools.cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, as deep as it goes."""
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is Any:
        return SETTINGS
    if hint in CHECKED:
        return CHECKED[hint]
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        fields = [field.name for field in dataclasses.fields(hint) if field.init]
        # Deferred: a fact may hold one of its own kind.
        return st.deferred(lambda: st.builds(hint, **{name: values(hints[name]) for name in fields}))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(map(values, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    assert origin in (Mapping, dict), f"a fact holds {hint}: nobody has said how that becomes JSON"
    return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)


def reread(part: Collector, answer: Any, folder: Path) -> Any:
    path = folder / "facts.json"
    path.write_text(factsfile.dump({part.fact: answer}, [part], "0"))
    return factsfile.load(path, [part])[part.fact]


@pytest.mark.parametrize("part", PORTABLE, ids=lambda part: part.name)
@settings(max_examples=cases(3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_portable_fact_survives_a_round_trip(
    part: Collector, tmp_path: Path, data: st.DataObject
) -> None:
    fact = data.draw(values(part.fact))
    assert reread(part, fact, tmp_path) == fact


@pytest.mark.parametrize("answer", [Unknown("dark"), Absent("none"), Broken("it broke")])
def test_unknown_keeps_its_kind(answer: Unknown, tmp_path: Path) -> None:
    assert reread(shelf, answer, tmp_path) == answer


def test_kind_defined_by_a_plugin_becomes_its_base_kind(tmp_path: Path) -> None:
    assert reread(shelf, OutOfReach("too high"), tmp_path) == Absent("too high")


def test_file_name_that_is_not_utf8_survives() -> None:
    text = factsfile.dump({Shelf: {"path": os.fsdecode(b"/x\xff")}}, [shelf], "0")
    assert text.isascii()
    assert json.loads(text)["facts"]["Shelf"]["is"]["path"] == "/x\udcff"


def test_entries_are_read_from_any_json_layout(tmp_path: Path) -> None:
    named = {Shelf: {"books": 3, "path": '/x\n  "Shelf": 7\udcff'}, Road: Absent("no road")}
    text = factsfile.dump(named, [shelf, road], "0")
    for layout in (text, json.dumps(json.loads(text)), text.replace("\n ", "\n")):
        path = tmp_path / "facts.json"
        path.write_text(layout)
        found = factsfile.texts_in(path)
        assert {name: json.loads(entry) for name, entry in found.items()} == json.loads(text)["facts"]


@pytest.mark.parametrize("cut", [10, 100, -2, -5, -30])
def test_truncated_file_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(factsfile.dump({Shelf: Shelf(3), Road: Absent("no road")}, [shelf, road], "0")[:cut])
    with pytest.raises(UsageError, match="is not a facts file"):
        factsfile.texts_in(path)


def test_kind_of_an_unknown_survives_a_round_trip() -> None:
    answer = Unknown("in other words", kind="not tried")
    assert factsfile.entry(answer) == {"unknown": "in other words", "kind": "not tried"}
    assert factsfile.restore("", shelf, factsfile.entry(answer)) == answer
    assert factsfile.restore("", shelf, {"unknown": "why", "kind": "a later doctor's"}) == Unknown("why")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("it is tried with --deep alone", "not tried"),
        ("/env/bin/python failed: x; isolated (-I -S) it answers, so a .pth file", "sound when isolated"),
        ("/env/bin/python cannot be started: Cannot allocate memory", "no more processes"),
        (
            "/env/bin/python cannot be started: no folder for temporary files can be written",
            "no temporary folder",
        ),
        ("there is no libnvidia-ml.so.1; a container needs the driver capability 'utility'", "no library"),
        ("no verl was found", ""),
    ],
)
def test_kinds_in_files_of_0_1_0_follow_from_the_reason(reason: str, kind: UnknownKind) -> None:
    assert factsfile.restore("", shelf, {"unknown": reason}) == Unknown(reason, kind=kind)


@pytest.mark.parametrize(("digits", "accepted"), [(20, True), (41, False)])
def test_number_that_would_overflow_is_refused(digits: int, accepted: bool, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    number = "9" * digits
    path.write_text(factsfile.dump({Shelf: Shelf(int(number))}, [shelf], "0"))
    assert number in path.read_text()
    if accepted:
        assert factsfile._FILE.document(path)
    else:
        with pytest.raises(UsageError, match="is not a facts file"):
            factsfile._FILE.document(path)
