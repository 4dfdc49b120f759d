"""What took the place of a removed name, under another name: knowledge that the sources of one release cannot tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Successor:
    """The name to import from the same module instead. `since` says which release did what, `as_of` when that was looked up."""

    name: str
    since: str
    upstream: str
    as_of: str


SUCCESSORS = {
    "transformers:AutoModelForVision2Seq": Successor(
        "AutoModelForImageTextToText",
        since="transformers 5.0.0 removed the old name, as the warning of 4.57 announced",
        upstream="huggingface/transformers#41513",
        as_of="2026-11",
    ),
}
