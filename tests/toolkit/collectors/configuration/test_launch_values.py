"""Single values of the job: from the command, then from the composed configuration."""

from __future__ import annotations

from typing import Any

import pytest

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import (
    KeyValue,
    LaunchValues,
    given,
    launch_values,
    text_of,
)
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.facts import Absent, Unknown


def launched(*words: Word) -> Launch:
    return Launch((), command=Command("verl.trainer.main_ppo", words, "run.sh", 1))


def overrides(launch: Launch | Unknown) -> LaunchValues:
    return launch_values(launch, Unknown("not composed"))


def read(*words: str) -> dict[str, Any]:
    found = overrides(launched(*(Word(text, "run.sh", 1) for text in words)))
    return {key: entry.value for key, entry in found.words.items() if entry.known}


def test_keys_lose_their_plus_and_values_their_quotes() -> None:
    assert read("a.b=1", "+c=x", "++d='y z'", 'e="f"') == {"a.b": 1, "c": "x", "d": "y z", "e": "f"}


def test_last_override_wins() -> None:
    assert read("a=1", "a=2") == {"a": 2}


def test_words_that_are_not_overrides_are_skipped() -> None:
    assert read("--config-path=x", "~a.b", "main.py", "=3") == {}
    assert overrides(Absent("no launch script")) == LaunchValues()
    assert overrides(Launch(())) == LaunchValues()


def test_undetermined_value_still_counts_as_given() -> None:
    for word in (Word(None, "run.sh", 1, "a=$UNKNOWN"), Word("a=[1", "run.sh", 1)):
        found = overrides(launched(word))
        assert given(found, "a") == KeyValue("a", None, known=False, path="run.sh", line=1)
        assert text_of(found, "a") == ""


def test_null_counts_as_not_given() -> None:
    found = overrides(launched(Word("a=null", "", 1), Word("b=3", "", 1), Word("c=", "", 1)))
    assert text_of(found, "c", "a", "b") == "3"
    assert given(found, "a") is None


def test_lists() -> None:
    found = overrides(launched(Word("a=[/a.parquet, '/b c.parquet']", "", 1), Word("b=/c.parquet", "", 1)))
    assert (found.words["a"].texts, found.words["b"].texts) == (
        ("/a.parquet", "/b c.parquet"),
        ("/c.parquet",),
    )


def test_configuration_supplies_values_missing_from_the_command() -> None:
    tree = {"a": {"b": [1, 2], "c": "${a.b}", "d": None, "e": "???", "f": "${oc.env:X}"}}
    composed = Configuration(
        "main.py", "/verl/config", "trainer", after=tree, origins={"a.b": "trainer.yaml"}
    )
    found = launch_values(launched(Word("a.d=word", "run.sh", 7)), composed)
    assert found.get("a.b") == KeyValue("a.b", [1, 2], path="/verl/config/trainer.yaml")
    assert (text_of(found, "a.d"), found.get("a.e"), found.get("a.x")) == ("word", None, None)
    undetermined = given(found, "a.f")
    assert undetermined is not None
    assert not undetermined.known


def test_refused_configuration_holds_no_values() -> None:
    refused = Configuration("main.py", "/verl/config", "trainer", refused="no such file")
    assert launch_values(launched(), refused).get("a") is None


@pytest.mark.parametrize(
    "word", [Word(None, "", 1, "$(./words)"), Word("--config-path=/my", "", 1), Word("-cn", "", 1)]
)
def test_keys_that_other_places_may_set_are_undetermined(word: Word) -> None:
    found = overrides(launched(word, Word("a=1", "run.sh", 2)))
    assert text_of(found, "a") == "1"
    assert given(found, "b") == KeyValue("b", None, known=False)


def test_program_of_the_users_may_set_more_keys() -> None:
    found = overrides(Launch((), command=Command("train.py", (), "run.sh", 1)))
    assert given(found, "a") == KeyValue("a", None, known=False)


def test_composed_configuration_leaves_nothing_open() -> None:
    composed = Configuration("main.py", "/verl/config", "mine", after={"a": 1})
    assert launch_values(launched(Word("--config-name=mine", "", 1)), composed).get("b") is None
