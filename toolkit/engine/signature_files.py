"""The raw signature files.

`logs.signature` makes signatures of them; an index stores them, because TOML is slow to parse.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
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


@functools.cache  # for the pages of all rules
def titles_of(family: str) -> Mapping[str, str]:
    """Return the codes of this family that signatures have, sorted, each with its title.

    Of a code with several faults, `group` states what they have in common.
    """
    titles: dict[str, str] = {}
    for entry in (entry for entries in indexed_entries().values() for entry in entries):
        if (code := entry.get("code", "")).startswith(family):
            titles[code] = entry.get("group") or titles.get(code) or entry["title"]
    return dict(sorted(titles.items()))


def entries_of(text: str) -> Entries:
    """Return the entries of one file. Raises ValueError for invalid TOML."""
    from verl_doctor.toolkit.system import toml  # noqa: PLC0415 - an index does not need it

    entries: Entries = toml.loads(text).get("signature", [])
    return entries
