"""The results of `verl-doctor warmup` as a JSON document."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.commands.warmup.warmup import EngineOutcome, Node, Warmup
from verl_doctor.toolkit.json_document import Count, plain
from verl_doctor.toolkit.result import Outcome
from verl_doctor.toolkit.warm.summary import Verdict


class MountDocument(TypedDict):
    """A file system with files of the job."""

    source: str
    kind: str
    shared: bool
    of_kernel: bool


class TroubleDocument(TypedDict):
    """A file that could not be read."""

    path: str
    reason: str


class PagesDocument(TypedDict):
    """The files in the page cache of one machine, in bytes unless noted otherwise."""

    files: Annotated[Count, "files with content, each counted once however many names it has"]
    size: Annotated[Count, "of all files, without holes"]
    wanted: Annotated[Count, "what fits into memory, from the first file on, and should be resident"]
    before: Annotated[int | None, "what was resident of `wanted`; null if the kernel does not report it"]
    resident: Annotated[int | None, "what is resident of `wanted` at the end"]
    read: Annotated[Count, "what was read"]
    lost: Annotated[Count, "what was resident during this run and has been evicted"]
    seconds: float
    done: Annotated[bool, "false if there was nothing to read"]
    ended: Annotated[str, "why it ended early"]
    whole_files: Annotated[Count, "files that should be resident from beginning to end"]
    cut_at: Annotated[str, "the first file that does not fit as a whole"]
    room: Annotated[int | None, "what memory and control groups leave for files; null if unknown"]
    room_limit: Annotated[str, "what sets that limit"]
    limit: Annotated[int | None, "the user's own limit"]
    mounts: list[MountDocument]
    troubles: list[TroubleDocument]
    more_troubles: Annotated[Count, "further files with trouble that are not listed"]


class NodeDocument(TypedDict):
    """One machine."""

    node: str
    verdict: Verdict
    missing: Annotated[str, "why it did not report"]
    pages: PagesDocument | None


class BytecodeDocument(TypedDict):
    """The bytecode that was compiled."""

    outcome: Outcome
    reason: str
    transaction: Annotated[str | None, "what verl-doctor undo reverts"]


class GrowthDocument(TypedDict):
    """A cache that has grown."""

    holds: str
    path: str
    files: int
    size: Annotated[int, "bytes"]


class EngineDocument(TypedDict):
    """The engine's caches of compiled kernels."""

    outcome: EngineOutcome
    reason: str
    seconds: float
    grown: list[GrowthDocument]


class WarmupDocument(TypedDict):
    """What was read into memory and compiled."""

    schema_version: Literal[1]
    verdict: Verdict
    dry_run: bool
    seconds: float
    nodes: Annotated[list[NodeDocument], "the machines whose files were examined; empty if no file was named"]
    bytecode: list[BytecodeDocument]
    engine: Annotated[EngineDocument | None, "null unless requested"]


def document(done: Warmup) -> WarmupDocument:
    """Return everything in JSON types."""
    return {
        "schema_version": 1,
        "verdict": done.verdict,
        "dry_run": done.dry_run,
        "seconds": round(done.seconds, 3),
        "nodes": [_node(node) for node in done.nodes],
        "bytecode": [
            {"outcome": repair.outcome, "reason": repair.reason, "transaction": repair.transaction}
            for repair in done.bytecode
        ],
        "engine": plain(done.engine),
    }


def _node(node: Node) -> NodeDocument:
    return {"node": node.name, "verdict": node.verdict, "missing": node.missing, "pages": plain(node.pages)}
