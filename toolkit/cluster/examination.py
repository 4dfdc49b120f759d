"""Sources of an examination with several machines: other nodes, and facts files of nodes. Interim results are shown."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.cluster import fleet, transport
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.cluster.transport import Way
from verl_doctor.toolkit.console.progress import announce
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import HERE, Look, Source, Watch
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.result import Report

_OFTEN = 5.0  # seconds between two lines about interim results, where no terminal shows them continuously


@dataclass(frozen=True)
class ReachedNodes(Source):
    """The nodes reached through an open connection, judged as one fleet together with this machine."""

    way: Way

    @property
    def facts_of(self) -> str:
        """The machine from which they are queried."""
        return HERE

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Query, judge and fold."""
        collection = look()
        # Closed at once on an interrupt, so that what runs on the nodes is stopped.
        with contextlib.closing(transport.responses(self.way, session, collection, watch)) as responses:
            return fleet.judge(responses, session, collection, _now_and_then(watch))


@dataclass(frozen=True)
class OtherNodes(Source):
    """The nodes that the user named, or the Ray cluster's, together with this machine."""

    nodes: RequestedNodes

    @property
    def facts_of(self) -> str:
        """The machine from which they are queried."""
        return HERE

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Announce how the nodes are reached, then judge them. Raises CouldNotQuery when there is none to query."""
        way = transport.way_to(self.nodes, session, look())
        announce(way.description)
        return ReachedNodes(way).judge(session, look, watch)


@dataclass(frozen=True)
class FactsFiles(Source):
    """Facts files, one per node; a folder stands for all `*.json` in it."""

    named: tuple[Path, ...]

    @property
    def facts_of(self) -> str:
        """The node of the first file."""
        return self._first.stem

    @property
    def _first(self) -> Path:
        first = self.named[0]
        return min(first.glob("*.json")) if os.path.isdir(first) else first

    def look(self, session: Session, known: Mapping[type, Any]) -> Collection:
        """Read the first file."""
        return replace(session, facts_file=self._first).look(known)

    def judge(self, session: Session, _look: Look, watch: Watch) -> Report:
        """Judge the files and nothing of this machine. Raises UsageError when there is none."""
        return fleet.judge_files(self.named, session, watch)


def _now_and_then(watch: Watch) -> Watch:
    """Pass everything to the progress line, and an occasional line to a log."""
    last = time.monotonic()

    def watched(so_far: str) -> None:
        nonlocal last
        watch(so_far)
        if time.monotonic() - last > _OFTEN and not sys.stderr.isatty():
            last = time.monotonic()
            announce(f"so far: {so_far}")

    return watched
