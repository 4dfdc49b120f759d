"""A tool's schema beside the classes that verl makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.configuration.tool_schema import fault

_CLASSES = """
class Property(BaseModel):
    type: str | list[str]
    description: str | None = None
    enum: list[Any] | None = None

class Parameters(BaseModel):
    type: str
    properties: dict[str, Property]
    required: list[str] = Field(default_factory=list)

class Function(BaseModel):
    name: str = Field(...)
    parameters: Parameters = Field(default_factory=Parameters)
    strict: bool = False

class OpenAIFunctionToolSchema(BaseModel):
    type: str
    function: Function
"""


def tool(**parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}, **parameters}}}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (tool(), ""),
        (tool(required=["a"], more=1), ""),
        (tool(properties={"a": {"type": ["number", "null"], "description": None, "enum": [1, "b"]}}), ""),
        (tool(required="${names}"), ""),
        ({"type": "function", "function": {"name": "add"}}, ""),
        (tool(required="a"), "tool_schema.function.parameters.required is a text, not a list"),
        (tool(required=[1]), "tool_schema.function.parameters.required[0] is 1, not a text"),
        (tool(properties={"a": {}}), "tool_schema.function.parameters.properties.a has no type"),
        (tool(properties=["a"]), "tool_schema.function.parameters.properties is a list, not a dictionary"),
        (tool(properties={"a": {"type": "number", "description": 3}}), "tool_schema.function.parameters.properties.a.description is 3, not a text"),
        ({"type": "function", "function": {}}, "tool_schema.function has no name"),
        ({"function": {"name": "add"}}, "tool_schema has no type"),
        ("add", "tool_schema is a text, not a dictionary"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, schema: Any, found: str) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/schemas.py").write_text(_CLASSES)
    assert fault(schema, tmp_path) == found


def test_a_verl_without_such_classes_refuses_nothing(tmp_path: Path) -> None:
    assert fault("add", tmp_path) == ""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/schemas.py").write_text(_CLASSES.replace("Function(BaseModel)", "Function(Other)"))
    assert fault({"type": "function", "function": {}}, tmp_path) == ""
