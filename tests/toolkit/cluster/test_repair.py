"""Which environments are repaired, in which order, and which are left alone if the first repair fails."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from verl_doctor.toolkit.cluster import repair as cluster_repair
from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.examination import ReachedNodes
from verl_doctor.toolkit.cluster.node_parcel import Parcel
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.transport import Way
from verl_doctor.toolkit.collectors.installed.environment_place import EnvironmentPlace
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import Outcome, Repair, Report
from verl_doctor.toolkit.target import Options

LOCAL = EnvironmentPlace("/env", "ext4", shared=False, files="boot 1 2")
NFS = EnvironmentPlace("/env", "nfs4", shared=True, files="nfs4 nas:/env 7")


def place(node: str, at: EnvironmentPlace | None) -> NodeResponse:
    entry = {"is": asdict(at)} if at else {"unknown": "no mounts"}
    return NodeResponse(node, facts={"EnvironmentPlace": json.dumps(entry)}, number=node)


def ended(outcome: Outcome, transaction: str | None = None) -> Repair:
    return Repair("a-fix", "VLLM101", "Mend it", "safe", outcome, transaction=transaction)


@dataclass
class Nodes:
    """Simulated nodes: the location of their environments, and the outcome of a repair there."""

    places: Sequence[NodeResponse]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    turns: list[list[str]] = field(default_factory=list)

    def query(
        self, parcel: Parcel, only: Sequence[NodeResponse] = (), *_: Any, **__: Any
    ) -> Generator[NodeResponse, None, None]:
        if "repair" not in parcel.request:
            yield from self.places
            return
        self.turns.append([node.node for node in only])
        for node in only:
            outcome = self.outcomes.get(node.node)
            done = [asdict(ended(outcome, f"/env/{node.node}/1"))] if outcome else []
            yield NodeResponse(node.node, facts={"repairs": json.dumps(done)})


@pytest.fixture(scope="module")
def run() -> Session:
    return open_session(Options())


def carried_out(
    run: Session, nodes: Nodes, mine: EnvironmentPlace, here: list[Repair], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[str, str]], list[str]]:
    """Outcome of the repairs, and the nodes left alone."""
    report = Report({"arguments": []}, ())
    monkeypatch.setattr(transport, "way_to", lambda *_: Way("asks", nodes.query))
    monkeypatch.setattr(ReachedNodes, "judge", lambda *_: report)
    monkeypatch.setattr(
        repair, "carry_out", lambda *_, **__: Report({"arguments": []}, (), repairs=tuple(here))
    )
    monkeypatch.setattr(cluster_repair, "place_parcel", lambda *_: Parcel(b"", {}))
    monkeypatch.setattr(cluster_repair, "repair_parcel", lambda *_, **__: Parcel(b"", {"repair": {}}))
    collection = Collection((), {EnvironmentPlace: mine})
    after, left = cluster_repair.carry_out(
        RequestedNodes(), run, collection, report, unsafe=False, watch=lambda _: None
    )
    return [(repair.outcome, repair.reason) for repair in after.repairs or ()], [node.node for node in left]


def other(number: int) -> EnvironmentPlace:
    return EnvironmentPlace("/env", "ext4", shared=False, files=f"boot{number} 1 2")


def test_shared_file_system_is_repaired_once(run: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes([place("n1", NFS), place("n2", NFS), place("n3", NFS)])
    done = carried_out(run, nodes, NFS, [ended("repaired", "/env/1")], monkeypatch)
    assert done == ([("repaired", "")], [])
    assert nodes.turns == []


def test_other_nodes_follow_after_a_successful_local_repair(
    run: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(
        [place(f"n{number}", other(number)) for number in range(1, 5)],
        dict.fromkeys(("n2", "n3", "n4"), "repaired"),
    )
    repairs, left = carried_out(run, nodes, other(1), [ended("repaired", "/env/1")], monkeypatch)
    assert nodes.turns == [["n2", "n3", "n4"]]
    assert repairs == [
        ("repaired", ""),
        ("repaired", "on n2 (/env/n2/1), n3 (/env/n3/1), n4 (/env/n4/1)"),
    ]
    assert left == []


def test_command_for_undo_on_other_nodes_is_printed(
    run: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes([place("n1", LOCAL), place("n2", other(2))], {"n2": "repaired"})
    carried_out(run, nodes, LOCAL, [ended("repaired", "/env/1")], monkeypatch)
    assert "verl-doctor undo --all --cluster undoes everything, here and there\n" in capsys.readouterr().err
    carried_out(run, Nodes([place("n1", LOCAL)]), LOCAL, [ended("repaired", "/env/1")], monkeypatch)
    assert "undo" not in capsys.readouterr().err


def test_failed_local_repair_leaves_other_nodes_alone(run: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes([place("n1", LOCAL), place("n2", other(2))])
    repairs, left = carried_out(run, nodes, LOCAL, [ended("made worse, undone")], monkeypatch)
    assert (nodes.turns, left) == ([], ["n2"])
    assert [outcome for outcome, _ in repairs] == ["made worse, undone"]


def test_single_node_goes_first_when_nothing_was_repaired_locally(
    run: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [place("n1", LOCAL), *(place(f"n{number}", other(number)) for number in (2, 3, 4))]
    good = Nodes(places, dict.fromkeys(("n2", "n3", "n4"), "repaired"))
    carried_out(run, good, LOCAL, [], monkeypatch)
    assert [len(turn) for turn in good.turns] == [1, 2]
    bad = Nodes(places, dict.fromkeys(("n2", "n3", "n4"), "still failing"))
    _, left = carried_out(run, bad, LOCAL, [], monkeypatch)
    assert [len(turn) for turn in bad.turns] == [1]
    assert len(left) == 2


def test_shared_file_systems_are_repaired_one_after_another(
    run: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two names of one server may be one file system."""
    also = EnvironmentPlace("/env", "nfs4", shared=True, files="nfs4 10.0.0.1:/env 7")
    nodes = Nodes([place("n1", LOCAL), place("n2", NFS), place("n3", NFS), place("n4", also)])
    carried_out(run, nodes, LOCAL, [ended("repaired")], monkeypatch)
    assert nodes.turns == [["n2"], ["n4"]]


def test_node_with_unknown_environment_is_not_touched(run: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes([place("n1", LOCAL), place("n2", None), NodeResponse("n3", missing="Ray declared it dead")])
    _, left = carried_out(run, nodes, LOCAL, [ended("repaired")], monkeypatch)
    assert (nodes.turns, left) == ([], ["n2", "n3"])


def test_node_that_reports_no_result_is_left(
    run: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes([place("n1", LOCAL), place("n2", other(2))])

    def silent(
        parcel: Parcel, only: Sequence[NodeResponse] = (), *_: Any, **__: Any
    ) -> Generator[NodeResponse, None, None]:
        if "repair" in parcel.request:
            yield NodeResponse("n2", missing="its disk is full")
        else:
            yield from nodes.places

    nodes.query = silent  # type: ignore[method-assign]
    _, left = carried_out(run, nodes, LOCAL, [ended("repaired")], monkeypatch)
    assert left == ["n2"]
    assert "could not repair n2: its disk is full" in capsys.readouterr().err
