"""Documents judged by JSON Schemas: each schema is read and judged itself once."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema
from jsonschema.validators import validator_for


def validate(document: Any, schema: str) -> None:
    """Raise jsonschema.ValidationError unless a document matches a schema, given as JSON."""
    _validator(schema).validate(document)


@functools.cache
def _validator(schema: str) -> Any:
    read = json.loads(schema)
    kind = validator_for(read, default=jsonschema.Draft202012Validator)
    kind.check_schema(read)
    return kind(read)
