"""What `verl-doctor clean` found and did as a JSON document, and the words that its views share. `data/clean.schema.json` describes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from verl_doctor.toolkit.commands.clean.clean import Cleaned
from verl_doctor.toolkit.leftover import Kept, Leftover
from verl_doctor.toolkit.text import counted, in_bytes

SCHEMA_VERSION = 1
_PLURALS: Mapping[str, str] = {"shared memory": "pieces of shared memory", "process": "processes"}
_SINGULARS: Mapping[str, str] = {"shared memory": "piece of shared memory"}


def document(cleaned: Cleaned) -> dict[str, Any]:
    """Everything, in JSON types."""
    outcomes = {(one.leftover.kind, one.leftover.name): one for one in cleaned.outcomes or ()}

    def became(one: Leftover) -> dict[str, Any]:
        outcome = outcomes.get((one.kind, one.name))
        return {"state": outcome.state if outcome else "found", "why": outcome.why if outcome else ""}

    return {
        "schema_version": SCHEMA_VERSION,
        "applied": cleaned.outcomes is not None,
        "leftovers": [
            {
                "kind": one.kind,
                "name": one.name,
                "proof": list(one.proof),
                "size": one.size,
                "store": one.store,
                "age": None if one.age is None else round(one.age),
                **became(one),
            }
            for one in cleaned.found.leftovers
        ],
        "kept": [
            {"kind": one.kind, "name": one.name, "why": one.why, "size": one.size, "store": one.store}
            for one in cleaned.found.kept
        ],
        "not_looked_at": [{"fact": fact, "why": why} for fact, why in cleaned.found.unknown],
        "unrecorded": cleaned.unrecorded or None,
    }


def headline(cleaned: Cleaned) -> tuple[str, str]:
    """One word, and the sentence behind it."""
    found, outcomes = cleaned.found, cleaned.outcomes
    if outcomes is not None and outcomes:
        gone = [one.leftover for one in outcomes if one.state == "removed"]
        if not cleaned.still_there:
            return "REMOVED", f"{kinds_of(gone)}{takes(gone, ', which took ')}"
        return "NOT ALL", f"{counted(len(gone), 'leftover')} removed, {len(cleaned.still_there)} still there"
    if found.leftovers:
        verb = "takes" if len(found.leftovers) == 1 else "take"
        return "LEFT OVER", f"{kinds_of(found.leftovers)}{takes(found.leftovers, f', which {verb} ')}"
    if found.unknown:
        return "UNKNOWN", "nothing is known to be left over, but not everything could be looked at"
    kept = f"; {counted(len(found.kept), 'thing')} looked at and kept" if found.kept else ""
    return "CLEAN", f"nothing is left over from dead jobs{kept}"


def kinds_of(leftovers: Iterable[Leftover]) -> str:
    """How many there are of each kind: "2 session folders and 1 socket"."""
    kinds = sorted(one.kind for one in leftovers)
    said = [
        counted(len(list(same)), _SINGULARS.get(kind, kind), _PLURALS.get(kind, ""))
        for kind, same in groupby(kinds)
    ]
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:]))) or "nothing"


def takes(leftovers: Iterable[Leftover | Kept], before: str) -> str:
    """How much they take of each store: "3.2 GiB of disk"; "" when nothing is known."""
    known = sorted((one.store, one.size) for one in leftovers if one.size and one.store != "resources")
    said = [
        f"{in_bytes(sum(size for _, size in same))} of {store}"
        for store, same in groupby(known, key=lambda pair: pair[0])
    ]
    return before + " and ".join(said) if said else ""


def next_steps(cleaned: Cleaned) -> Iterator[str]:
    """What to do now, and what cannot be done."""
    if cleaned.outcomes is None and cleaned.found.leftovers:
        yield "verl-doctor clean --apply removes them, each after a fresh look; that cannot be undone"
    if any(one.kind == "session folder" for one in cleaned.found.leftovers) and cleaned.outcomes is None:
        yield "the logs of dead jobs go with their sessions: read or copy before what you still need"
    if cleaned.unrecorded:
        yield f"the journal has no record of it: {cleaned.unrecorded}"
