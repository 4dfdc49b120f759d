"""Overrides of keys whose values are interpolations or missing, with the outcomes of hydra-core 1.3.8 on the same tree."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from verl_doctor.toolkit.sources.hydra.apply import apply
from verl_doctor.toolkit.sources.hydra.grammar import parse_override

TREE: dict[str, Any] = {
    "trainer": {
        "name": "a", "folder": "checkpoints/${trainer.name}", "alias": "${trainer.name}", "home": "${oc.env:HOME}", "none": None,
        "nothing": "${trainer.none}", "due": "???", "number": 0,
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (["~trainer.folder"], "applied"),
        (["~trainer.folder", "+trainer.folder=/x"], "applied"),
        (["~trainer.folder", "trainer.folder=/x"], "no such key"),
        (["~trainer.folder", "~trainer.folder"], "nothing to delete"),
        (["~trainer.folder=checkpoints/a"], "applied"),
        (["~trainer.alias=a"], "applied"),
        (["~trainer.alias=b"], "nothing to delete"),
        (["~trainer.home"], "applied"),
        (["~trainer.number=0"], "applied"),
        (["~trainer.none"], "nothing to delete"),
        (["~trainer.nothing"], "nothing to delete"),
        (["~trainer.due"], "nothing to delete"),
        (["~trainer.new"], "nothing to delete"),
        (["~trainer.new", "+trainer.new=1"], "applied"),
        (["+trainer.new=1", "~trainer.new"], "applied"),
        (["+trainer.due=1"], "applied"),
        (["+trainer.number=1"], "already there"),
    ],
)
def test_last_outcome_is_that_of_hydra(words: list[str], outcome: str) -> None:
    tree = copy.deepcopy(TREE)
    assert [apply(tree, parse_override(word)) for word in words][-1] == outcome


def test_deletion_by_a_value_that_is_not_known_leaves_the_key_undetermined() -> None:
    tree = copy.deepcopy(TREE)
    words = ["~trainer.name=${untold}", "+trainer.name=b", "~trainer.name=${untold}", "trainer.name=c"]
    assert [apply(tree, parse_override(word)) for word in words] == ["applied"] * 4
