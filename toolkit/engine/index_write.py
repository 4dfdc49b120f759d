"""`python -m verl_doctor.toolkit.engine.index_write TOOLKIT`: writes the modules' index into a wheel."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.engine import kept_index
from verl_doctor.toolkit.engine.part_index import example_names, parts_document
from verl_doctor.toolkit.engine.registry import built_in
from verl_doctor.toolkit.engine.signature_files import entries_by_file
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.system.own_files import TOOLKIT


def sections() -> Mapping[str, Any]:
    """Return every section of the index, importing everything that it covers."""
    made = built_in()
    return {
        "parts": parts_document(made),
        "examples": example_names(part for part, _ in made if isinstance(part, Check)),
        "signatures": entries_by_file(),
    }


def main(toolkit: str) -> None:
    """Write a file for each section. Exits with a message when `toolkit` is not what was imported."""
    if not TOOLKIT.samefile(toolkit):
        sys.exit(f"{TOOLKIT} was imported in place of {toolkit}")
    kept_index.SHIPPED.mkdir(parents=True, exist_ok=True)
    for name, content in sections().items():
        (kept_index.SHIPPED / f"{name}.json").write_text(kept_index.shipped_document(content), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
