"""A snapshot's summary, as JSON types and as text."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit import verdict as verdicts
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.json_document import Count
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.system.node_names import fold, shortened
from verl_doctor.toolkit.text import counted, in_bytes, listed


class NodesDocument(TypedDict):
    """The nodes of a cluster."""

    answered: Annotated[Count, "nodes that responded"]
    missing: Annotated[dict[str, str], "why a node did not respond"]


class SnapshotDocument(TypedDict):
    """What a snapshot file contains."""

    schema_version: Literal[1]
    file: str
    size: Annotated[Count, "bytes"]
    taken: Annotated[str, "UTC in ISO 8601"]
    machine: str
    facts: Count
    unseen: Annotated[dict[str, str], "facts that could not be collected, and why"]
    not_tried: Annotated[list[str], "those of `unseen` that only --deep collects"]
    patches: Annotated[int | None, "patches of the verl tree; null if there is no tree"]
    nodes: NodesDocument
    compare: Annotated[str, "the command that later compares the same target with this file"]
    verdict: verdicts.Verdict
    fails_by: Annotated[list[str], "rules that found what stops the job on this machine"]


def document(
    snapshot: Snapshot, report: Report, file: Path, size: int, nodes: Sequence[str] = ()
) -> SnapshotDocument:
    """Return the origin of the snapshot, what could not be examined, and the verdict on this machine.

    `size` is that of the file, in bytes; `nodes` are the options that named other nodes.
    """
    compare = ("verl-doctor", "compare", os.fspath(file), *nodes, *report.target.get("arguments", ()))
    unseen = {
        fact.__name__: value
        for fact, value in sorted(snapshot.facts.items(), key=lambda pair: pair[0].__name__)
        if isinstance(value, Unknown) and not isinstance(value, Absent)
    }
    return {
        "schema_version": 1,
        "file": os.fspath(file),
        "size": size,
        "taken": snapshot.taken,
        "machine": snapshot.machine,
        "facts": len(snapshot.facts) - len(unseen),
        "unseen": {name: value.reason for name, value in unseen.items()},
        "not_tried": [name for name, value in unseen.items() if value.kind == "not tried"],
        "patches": None if snapshot.patches is None else len(snapshot.patches),
        "nodes": {"answered": len(snapshot.nodes), "missing": dict(snapshot.nodes.missing)},
        "compare": shlex.join(compare),
        "verdict": report.verdict,
        "fails_by": list(
            dict.fromkeys(code for path in report.paths if path.state == "will_fail" for code in path.codes)
        ),
    }


def lines(document: SnapshotDocument) -> Iterator[str]:
    """Yield the same as text."""
    nodes, missing = document["nodes"]["answered"], document["nodes"]["missing"]
    of = f"{counted(nodes, 'node')} and {document['machine']}" if nodes or missing else document["machine"]
    patches = f", {counted(document['patches'], 'patch', 'patches')}" if document["patches"] else ""
    facts = counted(document["facts"], "fact")
    yield f"{document['file']}: {of}, {document['taken']}; {facts}{patches}, {in_bytes(document['size'])}"
    if missing:
        yield f"  no response from {shortened(fold(missing), len(missing))}: {next(iter(missing.values()))}"
    file = shlex.quote(document["file"])
    if codes := document["fails_by"]:
        why = f"verl-doctor check --facts {file} shows why"
        yield f"  this job will fail here too ({listed(codes, 3)}): {why}"
    deep = document["not_tried"]
    others = {name: reason for name, reason in document["unseen"].items() if name not in deep}
    if deep:
        yield f"  {len(deep)} more with --deep, which runs trials"
    for reason in dict.fromkeys(others.values()):
        names = [name for name, why in others.items() if why == reason]
        yield f"  not collected: {listed(names, 3)}: {reason}"
    yield "  to see later what differs, on this or another machine:"
    yield f"    {document['compare']}"
