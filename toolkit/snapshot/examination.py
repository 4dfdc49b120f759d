"""Stored sources of an examination: a snapshot of one machine or of several nodes, in a file or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.collectors.ray.fleet import Fleet
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.examination import Look, OneMachine, Source, Watch
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.snapshot import snapshot
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes
from verl_doctor.toolkit.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class KeptNodes(Source):
    """Nodes with stored responses, judged with the machine that queried them: this or the facts file's."""

    nodes: FoldedNodes

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge the responses as if they arrived now."""
        from verl_doctor.toolkit.cluster import fleet  # noqa: PLC0415 - a snapshot of one machine does without

        return fleet.judge(self.nodes.responses(), session, look(), watch)


@dataclass(frozen=True)
class SnapshotFile(Source):
    """A facts file that may hold the responses of nodes besides its own machine's facts.

    The session reads the same file.
    """

    path: Path

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge its nodes if it holds some, else its machine. Raises UsageError if they are damaged."""
        nodes = snapshot.nodes_in(self.path)
        kept: Source = OneMachine() if nodes is None else KeptNodes(nodes)
        return kept.judge(session, look, watch)


@dataclass(frozen=True)
class WholeSnapshot(Source):
    """A snapshot that was read or taken.

    Only its facts and nodes, and nothing of the machine on which it is judged.
    """

    snapshot: Snapshot

    def look(self, session: Session, known: Mapping[type, Any]) -> Collection:
        """Take the facts unchanged; those that are not portable are unknown."""
        collectors = session.registry.collectors
        here = {
            Config: session.config,
            Marker: Marker(session.config.marker),
            PluginProblems: session.registry.problems,
            **{part.fact: Unknown("it is not in a snapshot") for part in collectors if part.local},
        }
        return Collection((), {**here, **self.snapshot.facts, **known})

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge its nodes if it holds some, else its machine."""
        if self.snapshot.nodes:
            return KeptNodes(self.snapshot.nodes).judge(session, look, watch)
        collection = look()
        collection.give(Fleet, Absent("one machine was examined"))
        return session.check(collection, watch)
