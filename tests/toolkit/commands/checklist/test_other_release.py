"""Trees of two releases of verl differ without damage: neither rsync nor a word about damaged files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.installed.checkout import Checkout
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.packages.records import Drift, PackageRecord, Records
from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest
from verl_doctor.toolkit.commands.checklist import other_release
from verl_doctor.toolkit.commands.checklist.checklist import Invocation, Judgement
from verl_doctor.toolkit.commands.checklist.tree import judge_tree
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Target

RUN: Any = SimpleNamespace(target=Target(Path("/env/bin/python"), "--python"))
AGAIN = Invocation(RUN.target)
SITE = "/env/lib/python3.11/site-packages/verl"


def facts(version: str, folder: str = SITE, lost: int = 0, *, wheel: bool = True) -> dict[type, Any]:
    found_in = "site-packages" if wheel else "the current folder"
    found: dict[type, Any] = {
        VerlTrees: VerlTrees(Tree(folder, "verl", version, found_in), ""),
        TreeManifest: TreeManifest(
            folder, "", (f"file 644 90 aa{version[2]} aa{version[2]} protocol.py",), installed=wheel
        ),
    }
    if wheel:
        drifts = tuple(Drift("verl", version, f"{folder}/{n}.py", "missing") for n in range(lost))
        record = PackageRecord("verl", version, 434, 434, 0, missing=lost, changed=0)
        found[Records] = Records((record,), drifts)
    return found


def judged(
    old: dict[type, Any], new: dict[type, Any], monkeypatch: pytest.MonkeyPatch, logged: str = ""
) -> Judgement:
    monkeypatch.setattr(other_release, "steps_logged", lambda *_: logged)
    (found,) = judge_tree(Snapshot(old, path="OLD.json"), RUN, Collection((), new), None, AGAIN)
    return found


def test_intact_tree_of_another_release_is_named_with_the_way_to_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = judged(facts("0.9.1"), facts("0.8.0"), monkeypatch)
    assert found.state == "open"
    assert found.evidence[0] == "verl 0.8.0 is installed here, 0.9.1 where the job worked; both are intact"
    assert found.do == "/env/bin/python -m pip install verl==0.9.1"


def test_files_that_the_wheel_lists_and_the_tree_lacks_are_its_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = judged(facts("0.9.1"), facts("0.8.0", lost=3), monkeypatch)
    assert (found.state, found.do) == ("failed", "/env/bin/python -m pip install verl==0.9.1")
    assert found.evidence[1] == "3 files of verl 0.8.0 are missing or empty"


def test_later_release_is_settled_by_a_logged_step_and_never_reverted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upgraded = judged(facts("0.8.0"), facts("0.9.1"), monkeypatch)
    assert (upgraded.state, upgraded.do) == ("open", "")
    assert judged(facts("0.8.0"), facts("0.9.1"), monkeypatch, "a step was logged").state == "done"


def test_checkout_gets_the_old_commit_by_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "verl").mkdir()
    new = facts("0.8.0", str(tmp_path / "verl"), wheel=False)
    released = judged(facts("0.9.1"), new, monkeypatch)
    assert released.do == f"git -C {tmp_path} checkout v0.9.1"
    old = {**facts("0.9.1", "/old/verl", wheel=False), Checkout: Checkout("a" * 40)}
    assert judged(old, new, monkeypatch).do == f"git -C {tmp_path} checkout {'a' * 40}"


def test_old_checkout_is_copied_beside_a_wheel_and_not_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(facts("0.9.1", "/old/verl", wheel=False), facts("0.8.0"), monkeypatch)
    install = "/env/bin/python -m pip install --no-deps -e FOLDER"
    assert found.do == f"rsync -a /old/verl/ FOLDER/ && {install}  # FOLDER: a new one"
    named: Any = SimpleNamespace(target=replace(RUN.target, verl=Path("/here/verl")))
    new = Collection((), facts("0.8.0"))
    (found,) = judge_tree(Snapshot(facts("0.9.1", "/old/verl", wheel=False)), named, new, None, AGAIN)
    assert found.do == "rsync -a /old/verl/ FOLDER/  # FOLDER: a new one, to be named with --verl"
    (found,) = judge_tree(Snapshot(facts("0.9.1")), named, new, None, AGAIN)
    install = "/env/bin/python -m pip install --no-deps --target FOLDER verl==0.9.1"
    assert found.do == f"{install}  # FOLDER: a new one, to be named with --verl"


def test_builds_of_one_release_are_no_other_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_doctor.toolkit.commands.checklist.tree._changed_by_us", lambda *_: frozenset())
    same = judged(facts("0.9.1"), facts("0.9.1+cpu"), monkeypatch)
    assert (same.state, same.evidence[0]) == (
        "done",
        f"1 file of {SITE} compared with {SITE}: all are unchanged",
    )
    old = judged(facts("0.9.1+cpu"), facts("0.8.0"), monkeypatch)
    assert old.do == "/env/bin/python -m pip install verl==0.9.1"
    (tmp_path / ".git").mkdir()
    (tmp_path / "verl").mkdir()
    new = facts("0.8.0", str(tmp_path / "verl"), wheel=False)
    assert judged(facts("0.9.1+cpu"), new, monkeypatch).do == f"git -C {tmp_path} checkout v0.9.1"


def test_tree_without_a_list_of_files_is_not_called_intact(monkeypatch: pytest.MonkeyPatch) -> None:
    new = {fact: value for fact, value in facts("0.8.0").items() if fact is not Records}
    found = judged(facts("0.9.1"), new, monkeypatch)
    assert found.state == "open"
    assert found.evidence[0].endswith("no list of files shows whether 0.8.0 is complete; 0.9.1 is intact")
    half = "file 644 90 aa8 aa8 protocol.py.filepart"
    new[TreeManifest] = TreeManifest(SITE, "", (*new[TreeManifest].lines, half), installed=True)
    broken, other = judge_tree(
        Snapshot(facts("0.9.1"), path="OLD.json"), RUN, Collection((), new), None, AGAIN
    )
    assert (broken.state, other.state) == ("failed", "open")
    assert broken.evidence == ("half copied: protocol.py.filepart, left by an interrupted copy",)


@pytest.mark.parametrize("version", ["0.9.1", ""])
def test_files_of_one_release_and_of_unknown_ones_are_compared(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {**facts("0.9.1"), TreeManifest: TreeManifest(SITE, "", ("file 644 99 ff ff protocol.py",))}
    tree = Tree(SITE, "verl", version, "site-packages")
    new = {**facts("0.9.1"), VerlTrees: VerlTrees(tree, "")}
    monkeypatch.setattr("verl_doctor.toolkit.commands.checklist.tree._changed_by_us", lambda *_: frozenset())
    found = judged(old, new, monkeypatch)
    assert (found.state, found.evidence[0]) == ("failed", "shorter: protocol.py, 90 of 99 bytes")
    assert found.do.startswith("rsync ")
