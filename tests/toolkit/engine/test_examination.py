"""The one entry: each source of one machine, examined."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.engine.check_each import EachLaunchFile
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.examination import Request, examine, observe
from verl_doctor.toolkit.engine.judge import DEEP, Selection
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.facts import Collector, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Evidence, Finding, Location, check
from verl_doctor.toolkit.target import Options, Target, UsageError


@dataclass(frozen=True)
class Word:
    """The word in a file of the current folder, and the launch file that was named."""

    word: str
    launch: str = ""


@collector()
def word(machine: Machine, target: Target) -> Word:
    """Read them."""
    with (machine.cwd / "looks").open("a") as looks:
        looks.write("one\n")
    return Word((machine.cwd / "word").read_text(), str(target.files[0]) if target.files else "")


@check("HOST901")
def bad_word(word: Word) -> Iterator[Finding]:
    """The word is bad."""
    if word.word == "bad":
        yield Finding("bad", Evidence(word.word), location=Location(word.launch or "elsewhere", 1))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "word").write_text("bad")
    registry = Registry((bad_word,), (), (word,), (), PluginProblems())
    target = Target(tmp_path / "bin" / "python", chosen_by="--python")
    return Session(Machine(cwd=tmp_path), target, Config(), registry, Selection())


def test_machine_is_observed_once_and_judged(session: Session, tmp_path: Path) -> None:
    watched: list[str] = []
    found = examine(Request(session), watched.append)
    assert found.report.verdict == "failures"
    assert found.facts.get(Word) == Word("bad")
    assert found.facts is found.facts
    assert (tmp_path / "looks").read_text() == "one\n"
    assert watched == ["rule 1 of 1: HOST901"]
    assert (found.session, found.facts_of) == (session, "")


def test_every_examination_observes_afresh(session: Session, tmp_path: Path) -> None:
    assert examine(Request(session)).report.verdict == "failures"
    (tmp_path / "word").write_text("good")
    assert examine(Request(session)).report.verdict == "ok"


def test_known_facts_are_judged_without_observing(session: Session, tmp_path: Path) -> None:
    assert examine(Request(session, known={Word: Word("good")})).report.verdict == "ok"
    assert not (tmp_path / "looks").exists()


def test_observing_does_not_judge(session: Session) -> None:
    def never(_: Word) -> Iterator[Finding]:
        raise AssertionError
        yield

    silent = replace(session, registry=replace(session.registry, checks=(replace(bad_word, judge=never),)))
    assert observe(Request(silent)).get(Word) == Word("bad")


def test_facts_file_is_examined_instead_of_the_machine(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    entry = {"Word": {"is": {"word": "good", "launch": ""}}}
    file.write_text(json.dumps({"schema_version": 1, "facts": entry}))
    found = examine(Request(replace(session, facts_file=file)))
    assert found.report.verdict == "ok"
    assert found.report.target["arguments"] == ["--facts", str(file)]
    assert not (tmp_path / "looks").exists()
    file.write_text("{}")
    with pytest.raises(UsageError, match=r"facts\.json is not a facts file"):
        examine(Request(replace(session, facts_file=file)))


def test_next_command_selects_the_rules_that_the_user_selected(session: Session) -> None:
    (code,) = {check.code for check in session.registry.checks}
    chosen = replace(session, selection=Selection(select=(code,), ignore=("XYZ",), costs=DEEP | {"instant"}))
    options = ["--deep", "--select", code, "--ignore", "XYZ"]
    assert examine(Request(chosen)).report.target["arguments"][:5] == options
    by_file = replace(chosen, config=replace(session.config, select=(code,)), selection=Selection((code,)))
    assert "--select" not in examine(Request(by_file)).report.target["arguments"]


def test_launch_files_are_examined_one_by_one(session: Session, tmp_path: Path) -> None:
    for name in ("a.sh", "b.sh"):
        (tmp_path / name).write_text("true\n")
    verl = VerlTrees(Tree(str(tmp_path), "verl", "", "it was named"), "it was named")
    session = replace(session, registry=replace(session.registry, collectors=(word, _given(verl))))
    files = tuple(str(tmp_path / name) for name in ("a.sh", "b.sh"))
    report = examine(Request(session, EachLaunchFile(Options(python=Path("/usr/bin/python3")), files))).report
    places = [finding.location.path for _, finding in report.findings() if finding.location]
    assert places == list(files)


def _given(verl: VerlTrees) -> Collector:
    @collector()
    def trees() -> VerlTrees:
        """Take it as it is."""
        return verl

    return trees


def test_bare_tree_is_examined_without_being_installed(tmp_path: Path) -> None:
    tree = tmp_path / "vllm"
    tree.mkdir()
    (tree / "__init__.py").write_text("")
    (tree / "_version.py").write_text('version = __version__ = "0.11.0"\n')
    session = open_session(Options(vllm=tmp_path), select=("PY100",))
    found = examine(Request(session))
    vllm = found.facts.get(VllmTree)
    assert isinstance(vllm, VllmTree)
    assert vllm.tree.folder == str(tree)
    assert found.report.target["vllm"]["folder"] == str(tree)
