"""The results of `verl-doctor warmup` as a JSON document. `data/warmup.schema.json` describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit.commands.warmup.warmup import Node, Warmup

SCHEMA_VERSION = 1


def document(done: Warmup) -> dict[str, Any]:
    """Return everything in JSON types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": done.verdict,
        "dry_run": done.dry_run,
        "seconds": round(done.seconds, 3),
        "nodes": [_node(node) for node in done.nodes],
        "bytecode": [
            {"outcome": repair.outcome, "reason": repair.reason, "transaction": repair.transaction}
            for repair in done.bytecode
        ],
        "engine": None if done.engine is None else _plain(asdict(done.engine)),
    }


def _node(node: Node) -> dict[str, Any]:
    pages = None if node.pages is None else _plain(asdict(node.pages))
    return {"node": node.name, "verdict": node.verdict, "missing": node.missing, "pages": pages}


def _plain(value: Any) -> Any:
    """Convert tuples to lists for JSON."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
