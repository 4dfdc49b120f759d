"""The report as a JSON document: what `check` says, and the page. `data/page.schema.json` describes it."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from verl_doctor.toolkit import compare_document, log_document, result
from verl_doctor.toolkit.page import Page, StartUp
from verl_doctor.toolkit.report_seen import Seen

SCHEMA_VERSION = 1


def document(seen: Seen, page: Page, *, masked: bool) -> dict[str, Any]:
    """Everything, in JSON types. The texts of `page` are masked already where they have to be, those of `seen` are not."""
    check = result.document(seen.report)
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": check["verdict"],
        "target": check["target"],
        "masked": masked,
        "verl_doctor": seen.version,
        "taken": seen.taken,
        "check": check,
        "log": None if seen.log is None else log_document.document(seen.log),
        "compared": None if seen.compared is None else compare_document.document(seen.compared),
        "page": [
            {"title": section.title, "blocks": [_block(block) for block in section.blocks]}
            for section in page.sections
        ],
    }


def _block(block: Any) -> dict[str, Any]:
    if isinstance(block, StartUp):  # all of it is in `log`
        return {"kind": "startup", "chart": list(block.chart)}
    return {
        "kind": type(block).__name__.lower(),
        **{one.name: _value(getattr(block, one.name)) for one in fields(block)},
    }


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_value(inner) for inner in value]
    if hasattr(value, "__dataclass_fields__"):
        return _block(value)
    return value
