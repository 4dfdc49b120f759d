"""The state of a working cluster at one moment, in one file: a facts file with its time, origin and patches.

For one machine it is what `check --save-facts` writes. For several nodes it also holds their facts, folded,
and those of the machine that queried them, which has the facts about the job. Its patches can be applied to a
tree directly.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.collectors.installed.markers import Markers
from verl_doctor.toolkit.console.masked import masked
from verl_doctor.toolkit.console.progress import announce
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import Request, Watch, observe
from verl_doctor.toolkit.engine.session import Session, portable_facts, version
from verl_doctor.toolkit.facts import Collector, F, Unknown
from verl_doctor.toolkit.patchsets import patchset
from verl_doctor.toolkit.patchsets.patched import patched_files
from verl_doctor.toolkit.patchsets.patchset import AnyPatch
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes, nodes_from
from verl_doctor.toolkit.system.node_names import plain
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.text import listed

FORMAT = 1
_MAKE = "verl-doctor snapshot FILE"


@dataclass(frozen=True)
class Snapshot:
    """All facts that were collected, and the `version` of verl-doctor that did so.

    `taken` is UTC in ISO 8601 and `machine` the host's name, both "" in a facts file of `check --save-facts`.
    `facts` are this machine's, `nodes` the responses of the others, none if only one machine was examined.
    `patches` are those of the verl tree, None if not examined. `unread` are sentences on what the file holds
    and this verl-doctor cannot read. `schema` is the version of the facts' names and meanings.
    """

    facts: Mapping[type, Any]
    version: str = ""
    taken: str = ""
    machine: str = ""
    nodes: FoldedNodes = field(default_factory=FoldedNodes)
    patches: tuple[AnyPatch, ...] | None = None
    path: str = ""
    unread: tuple[str, ...] = ()
    schema: int = factsfile.SCHEMA_VERSION

    def get(self, fact: type[F]) -> F | Unknown:
        """Return a fact of this machine, or why it is unknown."""
        return cast("F | Unknown", self.facts.get(fact, Unknown(f"{fact.__name__} was not collected")))


def taken(run: Session, collection: Collection, responses: Iterable[NodeResponse] = ()) -> Snapshot:
    """Examine all of this machine, and keep the nodes' responses."""
    nodes = FoldedNodes()
    for response in responses:
        nodes.add(response)
    return Snapshot(
        facts=portable_facts(run, collection),
        version=version(),
        taken=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        machine=plain(platform.node()),
        nodes=nodes,
        patches=_patches(run, collection),
    )


def _patches(run: Session, collection: Collection) -> tuple[AnyPatch, ...] | None:
    """Return the patches of the tree in the format of `patches export`.

    Those that may contain a secret are left out.
    """
    markers = collection.get(Markers)
    if isinstance(markers, Unknown):
        return None
    return tuple(patch for file in patched_files(markers, run.config.marker) for patch in file.patches)


def dump(snapshot: Snapshot, collectors: Iterable[Collector]) -> str:
    """Return the content of the file."""
    document = factsfile.document(snapshot.facts, collectors, snapshot.version)
    about = {"format": FORMAT, "taken": snapshot.taken, "machine": snapshot.machine}
    nodes = {"nodes": snapshot.nodes.document()} if snapshot.nodes or snapshot.nodes.missing else {}
    patches = {} if snapshot.patches is None else {"patches": patchset.as_entries(snapshot.patches)}
    return json.dumps({**masked({**document, "snapshot": {**about, **nodes}}), **patches}, indent=1) + "\n"


def read(path: Path, collectors: Iterable[Collector]) -> Snapshot:
    """Read a snapshot, a facts file (one of a single machine), or a folder of facts files, NODE.json each.

    A file of another verl-doctor is read as far as possible; a damaged file of this one is rejected. Raises
    UsageError if the file is not a snapshot.
    """
    if os.path.isdir(path):
        return _of_folder(path, collectors)
    document = factsfile.document_of(path, kind="snapshot", make=_MAKE)
    written_by = str(document.get("verl_doctor", ""))
    about = document.get("snapshot", {})
    schema = document.get("schema_version")
    if type(schema) is not int or schema < 1:
        raise UsageError(f"{path} is damaged: it has no schema version; write the snapshot again")
    ours = written_by == version() and schema == factsfile.SCHEMA_VERSION
    if not isinstance(about, dict) or (ours and about.get("format", FORMAT) != FORMAT):
        raise UsageError(f"{path} is damaged: it does not state its machine; write the snapshot again")
    reader = _Reader(path, written_by, strict=ours)
    return Snapshot(
        facts=reader.facts(document["facts"], collectors),
        version=written_by,
        taken=str(about.get("taken", "")),
        machine=plain(str(about["machine"])) if about.get("machine") else "",
        nodes=reader.nodes(about.get("nodes")),
        patches=reader.patches(document.get("patches")),
        path=str(path),
        unread=tuple(reader.unread),
        schema=schema,
    )


def _of_folder(folder: Path, collectors: Iterable[Collector]) -> Snapshot:
    """Return the nodes with facts files in a folder. Raises UsageError if there are none."""
    from verl_doctor.toolkit.cluster.fleet import responses_in  # noqa: PLC0415 - judging nodes is much to load

    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder} contains no facts files; make a snapshot with: {_MAKE}")
    nodes = FoldedNodes()
    for response in responses_in(files):
        nodes.add(response)
    facts = {
        part.fact: factsfile.NotHeld(f"{folder} holds {part.name} of nodes alone")
        for part in collectors
        if not part.local
    }
    return Snapshot(facts, nodes=nodes, path=str(folder))


def nodes_in(path: Path) -> FoldedNodes | None:
    """Return the nodes that a facts file holds besides its own facts; None if it holds none.

    Raises UsageError.
    """
    document = factsfile.document_of(path)
    about = document.get("snapshot")
    nodes = about.get("nodes") if isinstance(about, dict) else None
    return _Reader(path, str(document.get("verl_doctor", "")), strict=True).nodes(nodes) if nodes else None


class _Reader:
    """Reads the parts of a file.

    An unreadable part is an error if the file is `strict`ly ours, else it is noted.
    """

    def __init__(self, path: Path, doctor: str, *, strict: bool) -> None:
        self._path = path
        self._doctor = f"verl-doctor {doctor}" if doctor else "another program"
        self._strict = strict
        self.unread: list[str] = []

    def facts(self, entries: Mapping[str, Any], collectors: Iterable[Collector]) -> dict[type, Any]:
        portable = [part for part in collectors if not part.local]
        found = {part.fact: self._fact(part, entries) for part in portable}
        if unknown := sorted(entries.keys() - {part.name for part in portable}):
            self.unread.append(f"facts unknown to this verl-doctor: {listed(unknown, 5)}")
        return found

    def _fact(self, part: Collector, entries: Mapping[str, Any]) -> Any:
        try:
            return factsfile.facts_of(entries, (part,), str(self._path))[part.fact]
        except UsageError as error:
            if self._strict:
                raise
            self.unread.append(str(error).partition("; ")[0])
            return Unknown(f"{self._doctor} wrote {part.name} otherwise")

    def nodes(self, document: Any) -> FoldedNodes:
        if document is None:
            return FoldedNodes()
        try:
            nodes = nodes_from(document)
            for _ in nodes.responses():
                pass
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._damaged("the facts of its nodes")
            return FoldedNodes()
        return nodes

    def patches(self, entries: Any) -> tuple[AnyPatch, ...] | None:
        if entries is None:
            return None
        try:
            return tuple(patchset.patches_in(entries, self._path))
        except (UsageError, TypeError):
            self._damaged("its patches")
            return None

    def _damaged(self, what: str) -> None:
        if self._strict:
            raise UsageError(f"{self._path}: {what} are damaged; write the snapshot again")
        self.unread.append(f"{what} are written in a way that this verl-doctor does not read")


def look(run: Session, nodes: RequestedNodes | None, watch: Watch) -> Snapshot:
    """Take a snapshot now, of these nodes too.

    Raises CouldNotQuery if they were named and cannot be queried.
    """
    collection = observe(Request(run))
    if nodes is None:
        return taken(run, collection)
    way = transport.way_to(nodes, run, collection)
    announce(way.description)
    # Close at once if the user interrupts: the processes on the nodes must be stopped.
    with contextlib.closing(transport.responses(way, run, collection, watch)) as responses:
        return taken(run, collection, responses)
