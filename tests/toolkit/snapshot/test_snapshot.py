"""Snapshot files: facts survive a round trip, folded in between, and other files are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fleets import dead, node, numbered, with_version
from support.machine_facts import MACHINES, known, machine
from support.trying import cases

from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.engine.session import version
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.patchsets import patchset
from verl_doctor.toolkit.patchsets.patchset import Patch
from verl_doctor.toolkit.snapshot import snapshot
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes, nodes_from
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import UsageError

ENTRIES = st.dictionaries(
    st.sampled_from(["Gpus", "Clock"]),
    st.sampled_from([{"is": {"now": n, "host": "a" * 40}} for n in range(4)] + [{"absent": "none"}]),
)
PATCH = Patch("workers/a.py", "f", ("abc",), (), "old()", "new()", "verl-doctor: VLLM101", 7)


def of(name: str, **changes: Any) -> Snapshot:
    facts = machine(name)
    seen = Snapshot(facts, version(), "2026-11-22T01:00:00Z", "node1", patches=(PATCH,))
    return replace(seen, **changes)


def written(one: Snapshot, folder: Path) -> Path:
    path = folder / "snapshot.json"
    path.write_text(snapshot.dump(one, known().collectors))
    return path


def back(one: Snapshot, folder: Path) -> Snapshot:
    return snapshot.read(written(one, folder), known().collectors)


def entries(facts: Any) -> Any:
    return factsfile.entries(facts, known().collectors)


def folded(answers: Sequence[NodeResponse]) -> FoldedNodes:
    nodes = FoldedNodes()
    for answer in answers:
        nodes.add(answer)
    return nodes


def nodes_in(nodes: FoldedNodes) -> list[tuple[str, str, Any, str]]:
    """Content of each node, independent of the key order."""
    return [
        (
            response.node,
            response.address,
            {name: json.loads(text) for name, text in response.facts.items()},
            response.missing,
        )
        for response in nodes.responses()
    ]


@pytest.mark.parametrize("name", ["h200-with-job", "head-node-of-two", "laptop", "closed-container"])
def test_recorded_machine_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    read = back(of(name), tmp_path)
    assert entries(read.facts) == entries(machine(name))
    assert (read.taken, read.machine, read.patches) == ("2026-11-22T01:00:00Z", "node1", (PATCH,))
    assert not read.unread


def test_snapshot_is_also_a_facts_file_and_a_patch_file(tmp_path: Path) -> None:
    path = written(of("laptop"), tmp_path)
    assert entries(factsfile.load(path, known().collectors)) == entries(machine("laptop"))
    assert patchset.load(path) == [PATCH]


def test_facts_file_is_a_snapshot_without_a_date() -> None:
    read = snapshot.read(MACHINES / "laptop.json", known().collectors)
    assert (read.taken, read.machine, read.patches, len(read.nodes)) == ("", "", None, 0)


@settings(max_examples=cases(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ENTRIES, max_size=6))
def test_nodes_survive_a_round_trip(facts: list[dict[str, Any]]) -> None:
    answers = [
        NodeResponse(f"node{number}", f"10.0.0.{number}", {name: json.dumps(one) for name, one in of.items()})
        for number, of in enumerate(facts)
    ]
    nodes = folded(answers)
    again = nodes_from(json.loads(json.dumps(nodes.document())))
    assert nodes_in(again) == nodes_in(nodes)
    assert {node[0]: node[2] for node in nodes_in(nodes)} == {
        answer.node: {name: json.loads(text) for name, text in answer.facts.items()} for answer in answers
    }


@pytest.mark.slow
def test_equal_nodes_are_stored_once(tmp_path: Path) -> None:
    sizes = {}
    for count in (1, 40):
        path = written(of("laptop", nodes=folded([node(name) for name in numbered(count)])), tmp_path)
        sizes[count] = path.stat().st_size
    one = len(json.dumps([json.loads(text) for text in node("node00001").facts.values()]))
    assert (sizes[40] - sizes[1]) / 39 < one / 40


@pytest.mark.slow
def test_differing_and_missing_nodes_are_named(tmp_path: Path) -> None:
    odd = node("node00099", with_version("vllm", "0.10.2"))
    nodes = folded([*(node(name) for name in numbered(3)), odd, dead("node00100"), dead("node00101")])
    read = back(of("h200-with-job", nodes=nodes), tmp_path)
    assert nodes_in(read.nodes) == nodes_in(nodes)
    document = json.loads((tmp_path / "snapshot.json").read_text())["snapshot"]["nodes"]
    assert document["missing"] == {"node[00100-00101]": "it did not tell its facts within 20 s"}
    assert [group["nodes"] for group in document["facts"]["Packages"]] == ["node[00001-00003]", "node00099"]


DAMAGE: dict[str, Any] = {
    "no facts": lambda it: it.pop("facts"),
    "facts that are none": lambda it: it.update(facts=[]),
    "a fact with a field missing": lambda it: it["facts"]["HostMemory"]["is"].pop("total"),
    "a fact of another kind": lambda it: it["facts"].update(HostMemory={"is": 7}),
    "another kind of snapshot": lambda it: it.update(snapshot="yes"),
    "patches that are none": lambda it: it.update(patches=[{"path": "/etc/passwd"}]),
    "nodes that are none": lambda it: it["snapshot"].update(nodes=7),
    "nodes without facts": lambda it: it["snapshot"]["nodes"].pop("facts"),
    "a node that is not there": lambda it: it["snapshot"]["nodes"]["addresses"].pop("node00001"),
    "a change that leads nowhere": lambda it: it["snapshot"]["nodes"]["facts"]["Gpus"][1].update(
        but={"/is/x/y": 1}
    ),
    "an entry like none": lambda it: it["snapshot"]["nodes"]["facts"]["Gpus"][1].update(like=9),
    "more nodes than there can be": lambda it: it["snapshot"]["nodes"]["missing"].update({"n[1-999999]": ""}),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_snapshot_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    path = written(of("laptop", nodes=folded([node(name) for name in numbered(2)])), tmp_path)
    document = json.loads(path.read_text())
    DAMAGE[what](document)
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"damaged|is not a snapshot") as refused:
        snapshot.read(path, known().collectors)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff", b"[]", b"[" * 100_000, b'{"facts": 1}', b"null"])
def test_other_files_are_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a snapshot; make one with: verl-doctor snapshot FILE"):
        snapshot.read(path, known().collectors)


def test_empty_folder_and_missing_file_are_refused(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "contains no facts files"), (tmp_path / "missing", "cannot be read")):
        with pytest.raises(UsageError, match=said):
            snapshot.read(path, known().collectors)


def test_folder_of_facts_files_is_a_snapshot_of_nodes(tmp_path: Path) -> None:
    for name in ("node1", "node2"):
        (tmp_path / f"{name}.json").write_text((MACHINES / "laptop.json").read_text())
    (tmp_path / "node3.json").write_text("{")
    read = snapshot.read(tmp_path, known().collectors)
    assert list(read.nodes.addresses) == ["node1", "node2"]
    assert list(read.nodes.missing) == ["node3"]


@pytest.mark.parametrize("change", [{"verl_doctor": "0.0.1"}, {"schema_version": 99}])
def test_readable_part_of_another_version_is_read(change: dict[str, Any], tmp_path: Path) -> None:
    path = written(of("laptop", nodes=folded([node("node1")])), tmp_path)
    document = {**json.loads(path.read_text()), **change}
    del document["facts"]["HostMemory"]["is"]["total"]
    document["facts"]["Weather"] = {"is": {"rain": True}}
    document["snapshot"]["nodes"] = {"otherwise": 1}
    path.write_text(json.dumps(document))
    read = snapshot.read(path, known().collectors)
    unknown = [
        fact.__name__
        for fact, value in read.facts.items()
        if isinstance(value, Unknown) and "otherwise" in value.reason
    ]
    assert unknown == ["HostMemory"]
    assert len(read.unread) == 3
    assert read.schema == change.get("schema_version", 1)
    assert any("Weather" in sentence for sentence in read.unread)


@pytest.mark.parametrize("schema", [0, -1, "x", None, True, 1.0, [1]])
def test_file_without_a_schema_version_is_refused(schema: Any, tmp_path: Path) -> None:
    path = written(of("laptop"), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": schema}))
    with pytest.raises(UsageError, match="damaged: it has no schema version; write the snapshot again"):
        snapshot.read(path, known().collectors)


def test_damaged_file_list_does_not_compare_as_equal(tmp_path: Path) -> None:
    path = written(of("laptop"), tmp_path)
    document = json.loads(path.read_text())
    document["facts"]["TreeManifest"] = {"is": {"folder": "/verl", "package": "", "lines": ["junk"]}}
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="the fact TreeManifest is damaged"):
        snapshot.read(path, known().collectors)
