"""What SARIF 2.1.0 demands of the parts that this doctor writes, by its specification (OASIS, sections 3.13 to 3.57).

Written anew from the text, and stricter than it: a property that is not known here is a mistake.
"""

from __future__ import annotations

from typing import Any


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT = {"type": "string", "minLength": 1}
_URI = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9+.:/_~%=@!$&'()*,;?-]+$",
}  # RFC 3986: no blank, no letter of another alphabet
_NUMBER = {"type": "integer", "minimum": 1}
_INDEX = {"type": "integer", "minimum": 0}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_MESSAGE = _object("text", text=_TEXT, markdown=_TEXT)
_BAG = {"type": "object"}
_REGION = _object("startLine", startLine=_NUMBER, startColumn=_NUMBER, endLine=_NUMBER, endColumn=_NUMBER)
_ARTIFACT = _object("uri", uri=_URI, uriBaseId=_TEXT)
_PHYSICAL = _object("artifactLocation", artifactLocation=_ARTIFACT, region=_REGION)
_LOGICAL = _object("name", name=_TEXT, fullyQualifiedName=_TEXT, kind=_TEXT)
_LOCATION = _object(
    "physicalLocation", id=_INDEX, physicalLocation=_PHYSICAL, logicalLocations=_list(_LOGICAL)
)
_RULE_NAME = _object("id", id=_TEXT, index=_INDEX)
_REPLACEMENT = _object(
    "deletedRegion", deletedRegion=_REGION, insertedContent=_object("text", text={"type": "string"})
)
_FIX = _object(
    "artifactChanges",
    description=_MESSAGE,
    artifactChanges={
        **_list(
            _object(
                "artifactLocation replacements",
                artifactLocation=_ARTIFACT,
                replacements={**_list(_REPLACEMENT), "minItems": 1},
            )
        ),
        "minItems": 1,
    },
)
_RULE = _object(
    "id",
    id=_TEXT,
    shortDescription=_MESSAGE,
    fullDescription=_MESSAGE,
    help=_MESSAGE,
    helpUri={**_URI, "pattern": "^https://"},
    defaultConfiguration=_object("level", level=_LEVEL),
    properties=_BAG,
)
_RESULT = _object(
    "message ruleId level locations partialFingerprints",
    ruleId=_TEXT,
    ruleIndex=_INDEX,
    level=_LEVEL,
    message=_MESSAGE,
    locations={**_list(_LOCATION), "minItems": 1},
    relatedLocations=_list(_LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT, "minProperties": 1},
    fixes=_list(_FIX),
    properties=_BAG,
)
_NOTIFICATION = _object(
    "message", message=_MESSAGE, level=_LEVEL, associatedRule=_RULE_NAME, locations=_list(_LOCATION)
)
_RUN = _object(
    "tool",
    tool=_object("driver", driver=_object("name", name=_TEXT, version=_TEXT, rules=_list(_RULE))),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={
        "type": "object",
        "additionalProperties": _object("uri", uri={**_URI, "pattern": "^file:///.*/$"}),
    },
    invocations=_list(
        _object(
            "executionSuccessful",
            executionSuccessful={"type": "boolean"},
            exitCode={"type": "integer"},
            toolExecutionNotifications=_list(_NOTIFICATION),
        )
    ),
    results=_list(_RESULT),
)
LOG = _object(
    "version runs", **{"$schema": _URI}, version={"const": "2.1.0"}, runs={**_list(_RUN), "minItems": 1}
)
