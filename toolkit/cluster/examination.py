"""Sources of an examination of several machines: other nodes, or facts files of nodes.

Interim results are shown.
"""

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

_OFTEN = 5.0  # seconds between two lines about interim results without a terminal


@dataclass(frozen=True)
class ReachedNodes(Source):
    """Nodes reached through an open connection, judged together with this machine."""

    way: Way

    @property
    def facts_of(self) -> str:
        """The machine from which they are queried."""
        return HERE

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Query and judge the nodes, and merge equal findings."""
        collection = look()
        # Closed immediately on an interrupt, which stops what runs on the nodes.
        with contextlib.closing(transport.responses(self.way, session, collection, watch)) as responses:
            return fleet.judge(responses, session, collection, _now_and_then(watch))


@dataclass(frozen=True)
class OtherNodes(Source):
    """The nodes that the user named or those of the Ray cluster, together with this machine."""

    nodes: RequestedNodes

    @property
    def facts_of(self) -> str:
        """The machine from which they are queried."""
        return HERE

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Announce how the nodes are reached, then judge them.

        Raises CouldNotQuery if there is none to query.
        """
        way = transport.way_to(self.nodes, session, look())
        announce(way.description)
        return about_nodes(ReachedNodes(way).judge(session, look, watch), self.nodes)


def about_nodes(report: Report, nodes: RequestedNodes) -> Report:
    """Return the report with the options that reach these nodes, for the commands that it proposes."""
    arguments = [*nodes.arguments, *report.target["arguments"]]
    return replace(report, target={**report.target, "arguments": arguments})


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
        """Judge only the files, without this machine. Raises UsageError if there is none."""
        return fleet.judge_files(self.named, session, watch)


def _now_and_then(watch: Watch) -> Watch:
    """Pass interim results to the progress line, and now and then to a log."""
    last = time.monotonic()

    def watched(so_far: str) -> None:
        nonlocal last
        watch(so_far)
        if time.monotonic() - last > _OFTEN and not sys.stderr.isatty():
            last = time.monotonic()
            announce(f"so far: {so_far}")

    return watched
