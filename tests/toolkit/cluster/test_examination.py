"""Sources that are several machines: other nodes, and facts files of nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.fleets import dead, node, numbered
from support.machine_facts import MACHINES, known

from verl_doctor.toolkit.cluster import examination, fleet, transport
from verl_doctor.toolkit.cluster.examination import FactsFiles, OtherNodes, ReachedNodes
from verl_doctor.toolkit.cluster.node_request import CouldNotQuery, RequestedNodes
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.transport import Way
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.examination import HERE, Request, examine
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.target import Target, UsageError

RECORDED = MACHINES / "h200-with-job.json"


@pytest.fixture
def session() -> Session:
    """Facts of this machine, replaced by a recorded one."""
    target = Target(Path(sys.executable), chosen_by="--python")
    return Session(Machine(), target, Config(), known(), Selection(), facts_file=RECORDED)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    """A way to nodes of which one does not answer."""

    def answers(*_: object) -> Iterator[NodeResponse]:
        yield from map(node, numbered(3))
        yield dead("gone")

    monkeypatch.setattr(transport, "responses", answers)
    return Way("queries 4 nodes", answers)  # type: ignore[arg-type]


def lines(report: Report) -> list[tuple[str, str, str | None]]:
    return [(result.code, finding.message, finding.node) for result, finding in report.findings()]


def test_reachable_nodes_are_judged_together_with_this_machine(session: Session, way: Way) -> None:
    found = examine(Request(session, ReachedNodes(way)))
    assert found.report.nodes is not None
    assert (found.report.nodes.answered, found.report.nodes.lost) == (3, 1)
    assert found.report.verdict in {"failures", "could_not_check"}
    assert found.facts_of == HERE
    assert not isinstance(found.facts.get(Interpreter), Unknown)


@pytest.mark.slow
def test_route_to_other_nodes_is_printed_before_they_are_judged(
    session: Session, way: Way, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = RequestedNodes(hosts=("a", "b"))
    monkeypatch.setattr(transport, "way_to", lambda nodes, *_: way if nodes is wanted else None)
    found = examine(Request(session, OtherNodes(wanted)))
    assert "queries 4 nodes" in capsys.readouterr().err
    reached = examine(Request(session, ReachedNodes(way))).report
    assert lines(found.report) == lines(reached)
    assert found.facts_of == HERE
    assert found.report.target["arguments"] == ["--nodes", "a,b", *reached.target["arguments"]]


def test_unreachable_cluster_yields_no_report(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Way:
        raise CouldNotQuery("there is no Ray cluster to ask")

    monkeypatch.setattr(transport, "way_to", refused)
    with pytest.raises(CouldNotQuery, match="no Ray cluster"):
        examine(Request(session, OtherNodes(RequestedNodes())))


@pytest.mark.slow
def test_facts_files_count_as_nodes_and_the_first_provides_the_facts(
    session: Session, tmp_path: Path
) -> None:
    for name in ("n1", "n2"):
        (tmp_path / f"{name}.json").write_bytes(RECORDED.read_bytes())
    session = replace(session, facts_file=tmp_path)
    found = examine(Request(session, FactsFiles((tmp_path,))))
    assert lines(found.report) == lines(fleet.judge_files([tmp_path], session))
    assert found.report.nodes is not None
    assert found.report.nodes.answered == 2
    assert found.facts_of == "n1"
    assert not isinstance(found.facts.get(Interpreter), Unknown)


def test_damaged_first_file_counts_as_a_lost_node(session: Session, tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text("{")
    (tmp_path / "n2.json").write_bytes(RECORDED.read_bytes())
    found = examine(Request(session, FactsFiles((tmp_path,))))
    assert found.report.nodes is not None
    assert (found.report.nodes.answered, found.report.nodes.lost) == (1, 1)
    with pytest.raises(UsageError, match=r"n1\.json"):
        _ = found.facts


def test_folder_without_facts_files_is_refused(session: Session, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no facts files"):
        examine(Request(session, FactsFiles((tmp_path,))))


def test_progress_is_logged_at_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter((0.0, 1.0, 6.0, 6.0, 7.0))
    monkeypatch.setattr(examination.time, "monotonic", lambda: next(now))
    watched: list[str] = []
    watch = examination._now_and_then(watched.append)
    for number in range(3):
        watch(f"{number} answered")
    assert watched == ["0 answered", "1 answered", "2 answered"]
    assert capsys.readouterr().err == "verl-doctor so far: 1 answered\n"
