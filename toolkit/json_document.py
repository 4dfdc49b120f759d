"""The types of JSON documents, and the JSON schema that follows from them.

A document is a `TypedDict`. In `Annotated`, a string describes a key, and a `Keyword` restricts its value.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


class Keyword(NamedTuple):
    """A keyword of JSON Schema, such as "minimum"."""

    name: str
    value: int | str


Count = Annotated[int, Keyword("minimum", 0)]
"""A number of things, or of bytes."""
Line = Annotated[int, Keyword("minimum", 1)]
"""A line of a file, counted from 1."""
Code = Annotated[str, Keyword("pattern", "^[A-Z]{2,5}[0-9]{3}$")]
"""The code of a rule or of a log signature."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BASIC: Mapping[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    types.NoneType: "null",
}


def plain(value: Any) -> Any:
    """Convert a dataclass to JSON types: dictionaries, and lists for tuples."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def schema(name: str, document: Any, command: str) -> dict[str, Any]:
    """Return the JSON schema of the document that a command prints: a `TypedDict`, or a union of several.

    Raises TypeError for a type that JSON cannot hold.
    """
    schemas = _Schemas(document)
    return {
        "$schema": _DIALECT,
        "$id": f"https://verl-doctor.invalid/{name}-1.json",
        "title": f"What verl-doctor {command} --format json prints",
        **(schemas.of_keys(document) if is_typeddict(document) else schemas.of(document)),
        **({"$defs": schemas.definitions} if schemas.definitions else {}),
    }


class _Schemas:
    """The schemas of the types in a document.

    Each `TypedDict` below the document itself becomes a definition.
    """

    def __init__(self, document: Any) -> None:
        self._document = document
        self.definitions: dict[str, dict[str, Any]] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """Return the schema of one type."""
        if hint is Any:
            return {}
        if isinstance(hint, type) and hint in _BASIC:
            return {"type": _BASIC[hint]}
        if is_typeddict(hint):
            return self._reference(hint)
        arguments = get_args(hint)
        match get_origin(hint):
            case origin if origin is Annotated:
                return self.of(arguments[0]) | _keywords(arguments[1:])
            case origin if origin is Literal:
                return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
            case origin if origin in (Union, types.UnionType):
                return _union([self.of(argument) for argument in arguments])
            case origin if origin is list:
                return {"type": "array", "items": self.of(arguments[0])}
            case origin if origin is dict:
                return {"type": "object", "additionalProperties": self.of(arguments[1])}
        raise TypeError(f"no JSON schema for {hint!r}")

    def of_keys(self, document: Any) -> dict[str, Any]:
        """Return the schema of a `TypedDict`."""
        hints = get_type_hints(document, include_extras=True)
        return {
            **({"description": document.__doc__} if document.__doc__ else {}),
            "type": "object",
            "required": [key for key in hints if key in document.__required_keys__],
            "additionalProperties": False,
            "properties": {key: self.of(hint) for key, hint in hints.items()},
        }

    def _reference(self, document: Any) -> dict[str, Any]:
        if document is self._document:
            return {"$ref": "#"}
        name = document.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # a document may contain itself
            self.definitions[name] = self.of_keys(document)
        return {"$ref": f"#/$defs/{name}"}


def _keywords(annotations: tuple[Any, ...]) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for annotation in annotations:
        keywords |= (
            {annotation.name: annotation.value}
            if isinstance(annotation, Keyword)
            else {"description": annotation}
        )
    return keywords


def _union(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine the schemas of a union in the shortest form."""
    if all(member.keys() == {"type"} for member in members):
        return {"type": [member["type"] for member in members]}
    null = {"type": "null"}
    values = [value for member in members if member != null for value in _values(member)]
    if values and all(member == null or _values(member) for member in members):
        return {"enum": [*values, None] if null in members else values}
    return {"anyOf": members}


def _values(member: dict[str, Any]) -> list[Any]:
    """Return the values of a literal; empty for other types."""
    return (
        member["enum"]
        if member.keys() == {"enum"}
        else [member["const"]]
        if member.keys() == {"const"}
        else []
    )
