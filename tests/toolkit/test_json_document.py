"""JSON schemas that follow from types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import pytest

from verl_doctor.toolkit.commands.explain.schemas import SCHEMAS, schema_text
from verl_doctor.toolkit.json_document import Count, Keyword, plain, schema


class Leaf(TypedDict):
    size: Count
    kind: Literal["a", "b"] | None


class _Extra(TypedDict, total=False):
    note: str


class Tree(_Extra):
    """A tree."""

    name: Annotated[str, "what it is called", Keyword("minLength", 1)]
    leaves: list[Leaf]
    child: Tree | None
    texts: dict[str, int | None]
    rest: Any


@dataclass(frozen=True)
class Pair:
    left: tuple[int, ...]
    right: Pair | None = None


def tree(**changed: Any) -> dict[str, Any]:
    whole = {
        "name": "x",
        "leaves": [{"size": 1, "kind": None}],
        "child": None,
        "texts": {"a": None},
        "rest": {},
    }
    return whole | changed


def test_document_allowed_by_the_type_is_valid() -> None:
    for document in (tree(), tree(child=tree(), note="n"), tree(rest=[1, None], texts={})):
        jsonschema.validate(document, schema("tree", Tree, "plant"))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"name": 1},
        {"leaves": [{"size": -1, "kind": "a"}]},
        {"leaves": [{"size": 1, "kind": "c"}]},
        {"leaves": [{"size": 1}]},
        {"child": {}},
        {"texts": {"a": "b"}},
        {"note": None},
        {"unexpected": 1},
    ],
)
def test_document_not_allowed_by_the_type_is_invalid(changed: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree(**changed), schema("tree", Tree, "plant"))


def test_descriptions_come_from_docstrings_and_annotations() -> None:
    found = schema("tree", Tree, "plant")
    assert found["title"] == "What verl-doctor plant --format json prints"
    assert found["description"] == "A tree."
    assert found["properties"]["name"]["description"] == "what it is called"


def test_type_without_a_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="tuple"):
        schema("x", tuple[int, ...], "x")


def test_dataclass_becomes_dictionaries_and_lists() -> None:
    assert plain(Pair((1, 2), Pair(()))) == {"left": [1, 2], "right": {"left": [], "right": None}}


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_is_valid_and_describes_its_document(name: str) -> None:
    found = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["title"].startswith("What verl-doctor ")
