"""The JSON schemas that ship with the package."""

from __future__ import annotations

import importlib.resources

SCHEMAS = (
    "report",
    "matrix",
    "environment",
    "clean",
    "watch",
    "logs",
    "actors",
    "warmup",
    "smoke",
    "checklist",
    "sites",
    "guard",
    "snapshot",
    "compare",
    "page",
)


def schema_text(document: str = SCHEMAS[0]) -> str:
    """Return the JSON schema of what a command prints."""
    data = importlib.resources.files("verl_doctor.toolkit") / "data"
    return (data / f"{document}.schema.json").read_text("utf-8")
