"""Sources that were kept: a snapshot in a file, the nodes in it, and a snapshot at hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.fleets import dead, node, numbered
from support.machine_facts import MACHINES, known, machine

from verl_doctor.toolkit.cluster import fleet
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.snapshot.examination import KeptNodes, SnapshotFile, WholeSnapshot
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Target, UsageError

RECORDED = MACHINES / "h200-with-job.json"


@pytest.fixture
def session() -> Session:
    target = Target(Path(sys.executable), chosen_by="--python")
    return Session(Machine(), target, Config(), known(), Selection(), facts_file=RECORDED)


@pytest.fixture
def nodes() -> FoldedNodes:
    folded = FoldedNodes()
    for answer in (*map(node, numbered(3)), dead("gone")):
        folded.add(answer)
    return folded


def lines(report: Report) -> list[tuple[str, str, str | None]]:
    return [(result.code, finding.message, finding.node) for result, finding in report.findings()]


def snapshot_of(tmp_path: Path, nodes: FoldedNodes) -> Path:
    document = json.loads(RECORDED.read_text("utf-8"))
    document["snapshot"] = {"format": 1, "taken": "", "machine": "driver", "nodes": nodes.document()}
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(document))
    return file


def test_snapshot_of_one_machine_is_judged_as_a_machine(session: Session) -> None:
    found = examine(Request(session, SnapshotFile(RECORDED)))
    assert found.report.nodes is None
    assert lines(found.report) == lines(examine(Request(session)).report)


@pytest.mark.slow
def test_snapshot_of_several_nodes_is_judged_as_a_fleet(
    session: Session, tmp_path: Path, nodes: FoldedNodes
) -> None:
    file = snapshot_of(tmp_path, nodes)
    session = replace(session, facts_file=file)
    found = examine(Request(session, SnapshotFile(file)))
    assert found.report.nodes is not None
    assert (found.report.nodes.answered, found.report.nodes.lost) == (3, 1)
    assert lines(found.report) == lines(fleet.judge(nodes.responses(), session, session.look()))
    assert found.facts.get(Interpreter) == machine("h200-with-job")[Interpreter]


def test_snapshot_with_damaged_nodes_is_refused(session: Session, tmp_path: Path, nodes: FoldedNodes) -> None:
    file = snapshot_of(tmp_path, nodes)
    document = json.loads(file.read_text("utf-8"))
    document["snapshot"]["nodes"]["facts"] = 3
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="the facts of its nodes are damaged"):
        examine(Request(session, SnapshotFile(file)))


@pytest.mark.slow
def test_recorded_nodes_are_judged_with_a_new_observation(session: Session, nodes: FoldedNodes) -> None:
    report = examine(Request(session, KeptNodes(nodes))).report
    assert report.nodes is not None
    assert report.nodes.answered == 3
    assert lines(report) == lines(fleet.judge(nodes.responses(), session, session.look()))


@pytest.mark.parametrize("with_nodes", [False, True])
def test_whole_snapshot_is_judged_without_this_machine(
    session: Session, nodes: FoldedNodes, with_nodes: bool
) -> None:
    facts = machine("h200-with-job")
    kept = Snapshot(facts, nodes=nodes) if with_nodes else Snapshot(facts)
    elsewhere = replace(session, facts_file=None)
    found = examine(Request(elsewhere, WholeSnapshot(kept)))
    assert found.facts.get(Interpreter) == facts[Interpreter]
    assert (found.report.nodes is not None) is with_nodes
    assert found.report.findings()
