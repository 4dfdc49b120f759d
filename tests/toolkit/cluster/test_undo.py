"""`undo` on other nodes: actions of a node, queried nodes, and output."""

from __future__ import annotations

import json
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.running import Doctor

from verl_doctor.toolkit.change import NewFile
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.cluster import node_program, node_reader, undo
from verl_doctor.toolkit.cluster.node_parcel import Parcel, undo_parcel
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.node_undo import undone
from verl_doctor.toolkit.cluster.repair import Environments
from verl_doctor.toolkit.cluster.transport import Way
from verl_doctor.toolkit.cluster.undo import Others
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Options, Target, journal_homes


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with two repairs, each of which created a file."""
    prefix = tmp_path / "env"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(prefix)
    home, _ = journal_homes(Target(prefix / "bin" / "python", "--python"))
    for name in ("first", "second"):
        assert apply.apply([NewFile(prefix / name, b"new\n")], home, fix=name, code="HOST950") is not None
    return prefix


@pytest.mark.parametrize(("everything", "left"), [(False, ["first"]), (True, [])])
def test_node_undoes_the_transactions_of_its_environment(
    environment: Path, monkeypatch: pytest.MonkeyPatch, everything: bool, left: list[str]
) -> None:
    python = environment / "bin" / "python"
    run = open_session(Options(python=python))
    request = undo_parcel(run, run.look(), everything=everything).request
    monkeypatch.setattr(sys, "executable", str(python))  # which runs this on the node
    for more in (True, False):
        answer = node_program.respond(request, Machine())
        facts, missing = node_reader.read(json.dumps({"facts": answer}))
        result = json.loads(facts[node_program.UNDONE])
        assert (missing, result["refused"]) == ("", [])
        if more:
            assert result["lines"][0].startswith("undone: repair 0002 (HOST950), applied ")
            assert [name for name in ("first", "second") if (environment / name).exists()] == left
    assert ("there is nothing to undo" in result["lines"]) == everything


def test_later_edits_are_kept_and_reported(environment: Path) -> None:
    (environment / "second").write_text("edited")
    result = undone(Machine(), Target(environment / "bin" / "python", "--python"), {"everything": False})
    assert result["lines"] == []
    assert "second" in result["refused"][0]


class Nodes:
    """Nodes that report what they have undone, and a record of the queried ones."""

    def __init__(self, *answers: NodeResponse) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def query(self, parcel: Parcel, only: list[NodeResponse], *_: Any) -> Iterator[NodeResponse]:
        assert parcel.request["undo"] == {"everything": True}
        self.asked += [node.node for node in only]
        yield from self.answers


def undone_there(node: str, *lines: str, refused: tuple[str, ...] = ()) -> NodeResponse:
    return NodeResponse(node, facts={"undone": json.dumps({"lines": lines, "refused": refused})})


def test_one_node_per_other_environment_is_queried(
    here: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, n2, n3, n4, n5 = (NodeResponse(f"n{number}") for number in range(1, 6))
    nodes = Nodes(
        undone_there("n2", "undone: repair 0001 (X)"), NodeResponse("n4", missing="its disk is full")
    )
    found = Environments((n1,), ((n2, n3), (n4,)), frozenset(), (n5,))

    def others(_: object, options: Options, __: object) -> Others:
        run = open_session(options)
        return Others(Way("asks", nodes.query), run, run.look(), found)

    monkeypatch.setattr(undo, "others", others)
    done = here("undo", "--all", "--cluster", "--python", sys.executable, cwd=tmp_path)
    assert nodes.asked == ["n2", "n4"]
    assert done.stdout == "n2: undone: repair 0001 (X)\n"
    assert "nothing is undone on n5: the location of its environment is unknown" in done.stderr
    assert "n4 may not have undone it: its disk is full" in done.stderr
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--cluster", "7"), "remove ID, --list and --keep-edits"),
        (("--nodes", "n1", "--list"), "remove ID, --list and --keep-edits"),
        (("--ray-address", "10.0.0.1:6379"), "--ray-address requires --cluster"),
    ],
)
def test_invalid_options_are_refused(here: Doctor, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = here("undo", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
