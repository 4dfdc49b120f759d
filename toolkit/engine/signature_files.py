"""The raw signature files.

`logs.signature` makes signatures of them; an index stores them, because TOML is slow to parse.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.engine import kept_index

Entries = list[dict[str, Any]]


def indexed_entries() -> dict[str, Entries]:
    """Return the entries of each file by its name, from the index."""
    found: dict[str, Entries] = kept_index.section("signatures", entries_by_file)
    return found


def entries_by_file() -> dict[str, Entries]:
    """Return the same, read from the files in the order of their names.

    Raises ValueError for invalid TOML.
    """
    folder = Path(next(iter(importlib.import_module("verl_doctor.checks").__path__))) / "data" / "signatures"
    return {path.name: entries_of(path.read_text("utf-8")) for path in sorted(folder.glob("*.toml"))}


def entries_of(text: str) -> Entries:
    """Return the entries of one file. Raises ValueError for invalid TOML."""
    from verl_doctor.toolkit.system import toml  # noqa: PLC0415 - an index does not need it

    entries: Entries = toml.loads(text).get("signature", [])
    return entries
