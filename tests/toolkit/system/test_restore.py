"""JSON back into dataclasses: matching values are restored, others are refused. `test_factsfile` has every fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from verl_doctor.toolkit.collectors.cuda.init import CudaAnswer
from verl_doctor.toolkit.collectors.ray.engine_reach import EngineReach
from verl_doctor.toolkit.system.restore import restored


@dataclass(frozen=True)
class Leaf:
    name: str
    size: int = 3


@dataclass(frozen=True)
class Tree:
    leaves: tuple[Leaf, ...] = ()
    ends: tuple[int, str] = (0, "")
    height: float = 0.0
    kind: Literal["oak", "fir"] = "oak"
    marks: Mapping[str, int] = field(default_factory=dict)
    first: Leaf | str | None = None
    other: Any = None
    below: tuple[Tree, ...] = ()


def test_matching_value_is_restored() -> None:
    value = {
        "leaves": [{"name": "a"}, {"name": "b", "size": 4, "new in a later version": 1}],
        "ends": [7, "x"],
        "height": 2,
        "kind": "fir",
        "marks": {"m": 1},
        "first": {"name": "c"},
        "other": [{"whatever": None}],
        "below": [{"height": 0.5}],
    }
    assert restored(Tree, value) == Tree(
        leaves=(Leaf("a"), Leaf("b", 4)),
        ends=(7, "x"),
        height=2,
        kind="fir",
        marks={"m": 1},
        first=Leaf("c"),
        other=[{"whatever": None}],
        below=(Tree(height=0.5),),
    )
    assert restored(Tree, {}) == Tree()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "a Tree was expected"),
        ({"leaves": {"name": "a"}}, "a list was expected"),
        ({"leaves": [{"size": 3}]}, "a Leaf has name, which this value lacks"),
        ({"leaves": [{"name": 3}]}, "str was expected, not 3"),
        ({"ends": [1]}, "a list of 2 was expected"),
        ({"height": "high"}, "float was expected"),
        ({"kind": "ash"}, "one of"),
        ({"kind": []}, "one of"),
        ({"marks": {"m": "1"}}, "int was expected"),
        ({"marks": []}, "an object was expected"),
        ({"first": 3}, "was expected, not 3"),
        ({"below": [{"height": None}]}, "float was expected"),
    ],
)
def test_mismatched_value_is_refused(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        restored(Tree, value)


def test_field_is_read_by_its_former_name() -> None:
    assert restored(CudaAnswer, {"said": "it did not end"}) == CudaAnswer(error="it did not end")
    assert restored(CudaAnswer, {"said": "old", "error": "new"}).error == "new"
    reach = {"told_by": "server.py", "joins": "10.0.0.9:6379", "said_by": "RAY_ADDRESS"}
    assert restored(EngineReach, reach) == EngineReach(
        "server.py", joins="10.0.0.9:6379", given_by="RAY_ADDRESS"
    )
