"""The index matches the modules, loads them on demand, and is never used for other files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from support import machine_facts

from verl_doctor.toolkit import deferred
from verl_doctor.toolkit.change import Fix
from verl_doctor.toolkit.deferred import Deferred, function_of
from verl_doctor.toolkit.engine import kept_index, registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.index_write import sections
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.engine.part_index import Part, restored
from verl_doctor.toolkit.facts import Collector
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.system.own_files import TOOLKIT

ROOT = TOOLKIT.parent
INDEX = json.loads(json.dumps(dict(sections())))
COSTS = frozenset({"instant", "live", "gpu", "cluster", "slow"})


@pytest.fixture(autouse=True)
def the_index_of_these_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_index, "known", INDEX.get)


def imported_parts() -> list[Part]:
    return [part for part, _ in registry.built_in()]


def declared(part: Part) -> dict[str, object]:
    """All that a part declares, with its functions themselves."""
    values = {name: function_of(value) for name, value in vars(part).items()}
    match part:
        case Check():
            more = {"title": part.title, "doc": part.documentation, "names": part.named_examples}
            return {**values, **more, "cases": part.examples, "examples": None, "case_names": None}
        case Fix():
            return {**values, "title": part.title}
    return {**values, "fact": part.fact, "name": part.name}


def by_name(parts: list[Part]) -> dict[tuple[str, str], Part]:
    return {(type(part).__name__, registry._name(part)): part for part in parts}


def test_index_matches_the_module_declarations() -> None:
    ours, indexed = by_name(imported_parts()), by_name(restored(INDEX["parts"]))
    assert ours.keys() == indexed.keys()
    for name, part in ours.items():
        assert declared(indexed[name]) == declared(part)


def test_indexed_part_defers_loading_its_functions() -> None:
    parts = restored(INDEX["parts"])
    functions = [
        part.judge if isinstance(part, Check) else part.plan if isinstance(part, Fix) else part.collect
        for part in parts
    ]
    assert all(isinstance(function, Deferred) for function in functions)
    assert {type(part) for part in parts} == {Check, Fix, Collector}


def test_index_gives_the_same_results_as_imported_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = machine_facts.machine("h200-with-job")
    plain = [replace(result, seconds=0) for result in machine_facts.judged(facts)]
    indexed = registry.load()
    monkeypatch.setattr(machine_facts, "known", lambda: indexed)
    assert [replace(result, seconds=0) for result in machine_facts.judged(facts)] == plain
    assert any(result.findings for result in plain)


def test_rule_without_its_facts_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[str] = set()
    really = deferred.imported

    def imported(module: str, path: str) -> object:
        taken.add(module)
        return really(module, path)

    monkeypatch.setattr(deferred, "imported", imported)
    checks = registry.load().checks
    results = judge(checks, Collection((), {}), Selection(costs=COSTS), today=date(2026, 1, 1))
    bare = {check.judge.__module__ for check in checks if all(need.tolerant for need in check.needs)}
    applying = {check.applies.__module__ for check in checks if check.applies is not None}
    assert {result.status for result in results} >= {"skipped"}
    assert taken <= bare | applying
    assert len(taken) < len(checks) / 10


def test_plugin_may_contain_a_built_in_rule() -> None:
    """It names the same function as the index does without its module."""
    ours, indexed = imported_parts()[0], restored(INDEX["parts"])[0]
    shelf = registry._Shelf()
    shelf.put(indexed, "verl-doctor")
    shelf.put(ours, "another")
    assert isinstance(ours, Check)
    with pytest.raises(ValueError, match="is already taken by verl-doctor"):
        shelf.put(replace(ours, judge=lambda: iter(())), "another")


RUN = """
import json, os, sys
from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.options import completion
completion.register()
for words in json.loads(sys.argv[1]):
    os.environ.pop(completion.VARIABLE, None)
    if words[0] == "TAB":
        os.environ |= {completion.VARIABLE: "bash_complete", "COMP_WORDS": " ".join(["verl-doctor", *words[1:]]),
                       "COMP_CWORD": str(len(words) - 1)}
        words = []
    try:
        cli.main(words, prog_name="verl-doctor", standalone_mode=False)
    except SystemExit as end:
        assert not end.code, words
families = ("verl_doctor.checks.", "verl_doctor.patches.")
print("imported", *sorted(name for name in sys.modules if name.startswith(families)))
"""


def run(tree: Path, home: Path, *commands: list[str]) -> tuple[str, list[str]]:
    """Output of commands run in one process, and the rule modules that it imported."""
    environ = {**os.environ, "PYTHONPATH": str(tree / ".dev"), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        cwd=home,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    *printed, last = done.stdout.splitlines()
    assert last.startswith("imported"), done.stderr
    return "\n".join(printed), last.split()[1:]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the doctor with the rules about drivers alone."""
    top = tmp_path / "tree"
    (top / ".dev" / "verl_doctor").mkdir(parents=True)
    for folder in ("toolkit", "checks", "patches"):
        (top / ".dev" / "verl_doctor" / folder).symlink_to(top / folder)
        families = [
            entry.name for entry in (ROOT / folder).iterdir() if folder != "toolkit" and entry.is_dir()
        ]
        left_out = set(families) - {"driver", "shared", "data", "__pycache__"}
        shutil.copytree(ROOT / folder, top / folder, ignore=lambda _, names, out=left_out: out & set(names))
    return top


def settle() -> None:
    """Wait until the clock of files has moved on: an index is kept of files that are older than the process."""
    time.sleep(4 * kept_index._TICK)


@pytest.mark.slow
def test_index_is_updated_with_the_files(tree: Path, tmp_path: Path) -> None:
    rule = tree / "checks" / "driver" / "libcuda_is_a_stub.py"
    listing, log = ["explain", "--list"], tmp_path / "log"
    log.write_text("/usr/bin/ld: cannot find -lcuda\n")
    settle()
    first, _ = run(tree, tmp_path, listing, ["explain", "CUDA102"])
    run(tree, tmp_path, listing, ["explain", "CUDA102"])  # it keeps the names of the examples

    commands = [listing, ["explain", "CUDA102"]]
    others = [
        ["--help"],
        ["TAB", "explain", "CUDA"],
        ["TAB", ""],
        ["undo", "--list"],
        ["logs", str(log)],
        ["explain"],
    ]
    again, imported = run(tree, tmp_path, *commands, *others)
    assert again.startswith(first)
    assert "CUDA102" in again
    assert imported == []

    def lists(home: Path = tmp_path) -> list[str]:
        return [line for line in run(tree, home, listing)[0].splitlines() if line.startswith("CUDA")]

    kept = lists()
    status = rule.stat()
    text = rule.read_text()
    title = next(line for line in kept if line.startswith("CUDA102")).split("\t")[3]
    assert title in text
    rule.write_text(text.replace(title, title.swapcase()))
    os.utime(
        rule, (status.st_atime, status.st_mtime - 5)
    )  # with the same time Python itself runs the old bytecode
    assert rule.stat().st_size == status.st_size
    assert lists() == [line.replace(title, title.swapcase()) for line in kept]

    added = rule.with_name("another_rule.py")
    added.write_text(text.replace("CUDA102", "CUDA899"))
    assert len(lists()) == len(kept) + 1
    settle()
    assert "CUDA899" in "".join(lists())
    added.unlink()
    rule.write_text(text)
    assert lists() == kept

    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / ".cache").write_text("a file where the cache would be")
    assert lists(closed) == kept
    assert lists(closed) == kept


@pytest.mark.slow
def test_shipped_index_is_used_only_for_unchanged_files(tree: Path, tmp_path: Path) -> None:
    program = ["-m", "verl_doctor.toolkit.engine.index_write", str(tree / "toolkit")]
    subprocess.run([sys.executable, *program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tree / ".dev")}, check=True)  # fmt: skip
    home = tmp_path / "home"
    home.mkdir()
    listed, imported = run(tree, home, ["explain", "CUDA102"], ["explain", "--list"])
    assert "CUDA102" in listed
    assert imported == []

    rule = tree / "checks" / "driver" / "libcuda_is_a_stub.py"
    rule.write_text(rule.read_text().replace("## Why it matters", "## Why it is so bad"))
    changed, imported = run(tree, home, ["explain", "CUDA102"])
    assert "Why it is so bad" in changed
    assert "verl_doctor.checks.driver.libcuda_is_a_stub" in imported
