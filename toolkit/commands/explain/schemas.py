"""The JSON schemas of the documents that commands print, generated from the types of these documents."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_TOOLKIT = "verl_doctor.toolkit"
_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {"report": "check", "environment": "explain variables RUN.sh", "sites": "sites import", "page": "report"}
)
"""The command of each document that is not named after it."""
_TYPES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "report": ("render.document", "ReportDocument"),
        "matrix": ("commands.matrix.document", "AnyDocument"),
        "environment": ("commands.environment.document", "EnvironmentDocument"),
        "clean": ("commands.clean.document", "CleanDocument"),
        "watch": ("commands.watch.document", "WatchDocument"),
        "logs": ("logs.document", "LogsDocument"),
        "actors": ("commands.actors.document", "ActorsDocument"),
        "warmup": ("commands.warmup.document", "WarmupDocument"),
        "smoke": ("commands.smoke.document", "SmokeDocument"),
        "checklist": ("commands.checklist.checklist", "ChecklistDocument"),
        "sites": ("commands.sites.answer", "SitesDocument"),
        "guard": ("commands.guard.guard", "GuardDocument"),
        "snapshot": ("snapshot.document", "SnapshotDocument"),
        "compare": ("comparison.document", "CompareDocument"),
        "page": ("commands.report.view", "PageDocument"),
    }
)
"""The module and the type of each document; only the requested one is loaded."""

SCHEMAS: Final = tuple(_TYPES)


def schema_text(document: str = SCHEMAS[0]) -> str:
    """Return the JSON schema of a document."""
    from verl_doctor.toolkit.json_document import schema  # noqa: PLC0415 - other lookups do without

    module, name = _TYPES[document]
    types = importlib.import_module(f"{_TOOLKIT}.{module}")
    return (
        json.dumps(schema(document, getattr(types, name), _COMMANDS.get(document, document)), indent=2) + "\n"
    )
