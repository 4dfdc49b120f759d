"""The successors of removed names, which the sources of a single release cannot show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Successor:
    """The name to import from the same module instead.

    `since` states which release changed what, `as_of` when that was looked up.
    """

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
