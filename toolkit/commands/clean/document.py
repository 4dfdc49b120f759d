"""What `verl-doctor clean` found and did as a JSON document, and the phrases that its views share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.commands.clean.clean import Cleaned, Run, Total
from verl_doctor.toolkit.json_document import plain
from verl_doctor.toolkit.leftover import Kept, Kind, Leftover, Store
from verl_doctor.toolkit.text import counted, in_bytes, in_time

_PLURALS: Mapping[str, str] = {"shared memory": "shared memory segments", "process": "processes"}
_SINGULARS: Mapping[str, str] = {"shared memory": "shared memory segment"}

_Size = Annotated[int | None, "in bytes of `store`; null if unknown"]


class LeftoverDocument(TypedDict):
    """Something that a dead job left behind."""

    kind: Kind
    name: str
    proof: Annotated[list[str], "the observations that prove that nothing needs it"]
    size: _Size
    store: Store
    age: Annotated[int | None, "seconds since its last change, or since its job ended"]
    state: Literal["found", "removed", "kept", "partly removed", "not removed"]
    why: Annotated[str, "why it still exists although it was to be removed"]


class KeptDocument(TypedDict):
    """Something that may still be needed."""

    kind: Kind
    name: str
    why: str
    size: _Size
    store: Store


class NotLookedAtDocument(TypedDict):
    """Something that could not be examined."""

    fact: str
    why: str


class TotalDocument(TypedDict):
    """Everything of one kind on this machine."""

    kind: Annotated[
        str, 'a kind of leftover, or a GPU\'s memory; "process" counts those of Ray, vLLM, SGLang and verl'
    ]
    number: int
    size: Annotated[int, "in bytes"]


class AppearedDocument(TypedDict):
    """Something that appeared while the job ran."""

    kind: Kind
    name: str
    size: _Size
    store: Store


class RunDocument(TypedDict):
    """The job of --run."""

    exit_code: Annotated[int, "as a shell reports it"]
    signal: Annotated[str | None, "the signal that ended it"]
    seconds: float
    before: Annotated[list[TotalDocument], "what all jobs of this machine had before the job"]
    after: list[TotalDocument]
    appeared: Annotated[list[AppearedDocument], "what cannot be traced to the job"]


class CleanDocument(TypedDict):
    """What dead jobs left behind, and what became of it."""

    schema_version: Literal[1]
    applied: Annotated[bool, "whether leftovers were to be removed"]
    leftovers: list[LeftoverDocument]
    kept: list[KeptDocument]
    not_looked_at: list[NotLookedAtDocument]
    unrecorded: Annotated[str | None, "why the journal does not record every removal"]
    run: Annotated[RunDocument | None, "null without --run; otherwise all leftovers are those of this job"]


def document(cleaned: Cleaned) -> CleanDocument:
    """Return everything in JSON types."""
    outcomes = {(outcome.leftover.kind, outcome.leftover.name): outcome for outcome in cleaned.outcomes or ()}

    def with_outcome(leftover: Leftover) -> LeftoverDocument:
        outcome = outcomes.get((leftover.kind, leftover.name))
        return {
            "kind": leftover.kind,
            "name": leftover.name,
            "proof": list(leftover.proof),
            "size": leftover.size,
            "store": leftover.store,
            "age": None if leftover.age is None else round(leftover.age),
            "state": outcome.state if outcome else "found",
            "why": outcome.why if outcome else "",
        }

    return {
        "schema_version": 1,
        "applied": cleaned.outcomes is not None,
        "leftovers": [with_outcome(leftover) for leftover in cleaned.found.leftovers],
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


def _run(run: Run) -> RunDocument:
    return {
        "exit_code": run.ended.code,
        "signal": run.ended.signal or None,
        "seconds": round(run.ended.seconds, 1),
        "before": [plain(total) for total in run.before],
        "after": [plain(total) for total in run.after],
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
    kept = f"; {counted(len(found.kept), 'item')} examined and kept" if found.kept else ""
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
    """Yield how the job ended, and what the machine had before and after it."""
    yield f"job: {run.ended} after {in_time(run.ended.seconds)}"
    totals = {total.kind: [total, Total(total.kind)] for total in run.before}
    for total in run.after:
        totals.setdefault(total.kind, [Total(total.kind), total])[1] = total
    parts = [
        (
            f"{_PLURALS.get(kind, kind + 's' if before.number or after.number else kind)} {_total(before)} "
            f"-> {_total(after)}"
        )
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
