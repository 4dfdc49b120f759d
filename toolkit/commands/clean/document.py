"""What `verl-doctor clean` found and did as a JSON document, and the phrases that its views share.

`data/clean.schema.json` describes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from verl_doctor.toolkit.commands.clean.clean import Cleaned, Run, Total
from verl_doctor.toolkit.leftover import Kept, Leftover
from verl_doctor.toolkit.text import counted, in_bytes, in_time

SCHEMA_VERSION = 1
_PLURALS: Mapping[str, str] = {"shared memory": "pieces of shared memory", "process": "processes"}
_SINGULARS: Mapping[str, str] = {"shared memory": "piece of shared memory"}


def document(cleaned: Cleaned) -> dict[str, Any]:
    """Return everything in JSON types."""
    outcomes = {(outcome.leftover.kind, outcome.leftover.name): outcome for outcome in cleaned.outcomes or ()}

    def became(leftover: Leftover) -> dict[str, Any]:
        outcome = outcomes.get((leftover.kind, leftover.name))
        return {"state": outcome.state if outcome else "found", "why": outcome.why if outcome else ""}

    return {
        "schema_version": SCHEMA_VERSION,
        "applied": cleaned.outcomes is not None,
        "leftovers": [
            {
                "kind": leftover.kind,
                "name": leftover.name,
                "proof": list(leftover.proof),
                "size": leftover.size,
                "store": leftover.store,
                "age": None if leftover.age is None else round(leftover.age),
                **became(leftover),
            }
            for leftover in cleaned.found.leftovers
        ],
        "kept": [
            {
                "kind": kept_entry.kind,
                "name": kept_entry.name,
                "why": kept_entry.why,
                "size": kept_entry.size,
                "store": kept_entry.store,
            }
            for kept_entry in cleaned.found.kept
        ],
        "not_looked_at": [{"fact": fact, "why": why} for fact, why in cleaned.found.unknown],
        "unrecorded": cleaned.unrecorded or None,
        "run": None if cleaned.run is None else _run(cleaned.run),
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "exit_code": run.ended.code,
        "signal": run.ended.signal or None,
        "seconds": round(run.ended.seconds, 1),
        "before": [vars(total) for total in run.before],
        "after": [vars(total) for total in run.after],
        "appeared": [
            {"kind": entry.kind, "name": entry.name, "size": entry.size, "store": entry.store}
            for entry in run.appeared
        ],
    }


def headline(cleaned: Cleaned) -> tuple[str, str]:
    """Return the verdict as a word and a sentence."""
    found, outcomes = cleaned.found, cleaned.outcomes
    if outcomes is not None and outcomes:
        gone = [outcome.leftover for outcome in outcomes if outcome.state == "removed"]
        if not cleaned.still_there:
            return "REMOVED", f"{kinds_of(gone)}{takes(gone, ', which took ')}"
        return "NOT ALL", f"{counted(len(gone), 'leftover')} removed, {len(cleaned.still_there)} remain"
    if cleaned.run is not None and (left := found.everything):
        return "LEFT OVER", f"the job left {kinds_of(left)}{takes(left, ', taking ')}"
    if found.leftovers:
        verb = "takes" if len(found.leftovers) == 1 else "take"
        return "LEFT OVER", f"{kinds_of(found.leftovers)}{takes(found.leftovers, f', which {verb} ')}"
    if found.unknown:
        return "UNKNOWN", "nothing is known to be left over, but not everything could be examined"
    if cleaned.run is not None:
        return "CLEAN", "the job left nothing behind"
    kept = f"; {counted(len(found.kept), 'thing')} examined and kept" if found.kept else ""
    return "CLEAN", f"nothing is left over from dead jobs{kept}"


def kinds_of(leftovers: Iterable[Leftover | Kept]) -> str:
    """Return how many there are of each kind: "2 session folders and 1 socket"."""
    kinds = sorted(leftover.kind for leftover in leftovers)
    parts = [
        counted(len(list(same)), _SINGULARS.get(kind, kind), _PLURALS.get(kind, ""))
        for kind, same in groupby(kinds)
    ]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) or "nothing"


def takes(leftovers: Iterable[Leftover | Kept], before: str) -> str:
    """Return how much of each store they take: "3.2 GiB of disk"; "" if unknown."""
    known = sorted(
        (leftover.store, leftover.size)
        for leftover in leftovers
        if leftover.size and leftover.store != "resources"
    )
    parts = [
        f"{in_bytes(sum(size for _, size in same))} of {store}"
        for store, same in groupby(known, key=lambda pair: pair[0])
    ]
    return before + " and ".join(parts) if parts else ""


def of_run(run: Run) -> Iterator[str]:
    """Return how the job ended, and what the machine had before and after it."""
    yield f"job: {run.ended} after {in_time(run.ended.seconds)}"
    totals = {total.kind: [total, Total(total.kind)] for total in run.before}
    for total in run.after:
        totals.setdefault(total.kind, [Total(total.kind), total])[1] = total
    parts = [
        f"{_PLURALS.get(kind, kind + 's' if before.number or after.number else kind)} {_total(before)} -> {_total(after)}"
        for kind, (before, after) in totals.items()
        if before != after
    ]
    changed = "; ".join(parts) or "nothing changed"
    yield f"before and after, all jobs of this machine: {changed}"


def _total(total: Total) -> str:
    """Return a number, a size, or both: "2 (1.0 GiB)"."""
    size = in_bytes(total.size) if total.size else ""
    return f"{total.number} ({size})" if total.number and size else size or str(total.number)


def next_steps(cleaned: Cleaned) -> Iterator[str]:
    """Yield the next steps, and what was not possible."""
    if cleaned.outcomes is None and cleaned.found.leftovers:
        yield "run verl-doctor clean --apply to remove them, each after a fresh check; this cannot be undone"
    if (
        any(leftover.kind == "session folder" for leftover in cleaned.found.leftovers)
        and cleaned.outcomes is None
    ):
        yield "removing a session removes the logs of its jobs: first copy what you still need"
    if cleaned.unrecorded:
        yield f"the journal has no complete record: {cleaned.unrecorded}"
