"""The fix for API101 imports the replacement of a name removed from transformers or Ray."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.miniatures.patched_tree import importable
from support.miniatures.source_trees import write
from support.trying import thorough

from verl_doctor.checks.api.library_import_missing import library_import_missing
from verl_doctor.patches.source.library_import import library_import
from verl_doctor.toolkit.change import Refusal
from verl_doctor.toolkit.collectors.api.trees import read_libraries
from verl_doctor.toolkit.collectors.api.uses import LibraryUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.testing import run_check

OLD = "class AutoConfig: ...\nclass AutoModelForVision2Seq: side = 'old'\n"
NEW = "class AutoConfig: ...\nclass AutoModelForImageTextToText: side = 'new'\n"
MAIN = "trainer/main_ppo.py"


class Case:
    def __init__(self, folder: Path, main: str, **others: str) -> None:
        files = {MAIN: main, "workers/rollout/vllm_rollout/vllm_async_server.py": "ready = True\n"}
        self.verl = write(folder / "verl", {**files, **{f"{name}.py": text for name, text in others.items()}})
        self.main = self.verl / MAIN
        self.sides = {
            "old": write(
                folder / "old" / "transformers", {"__init__.py": OLD, "gone.py": "def moved(): ...\n"}
            ),
            "new": write(
                folder / "new" / "transformers", {"__init__.py": NEW, "now.py": "def moved(): ...\n"}
            ),
        }

    def uses(self, side: str) -> LibraryUses:
        library = Tree(
            str(self.sides[side]), "transformers", {"old": "4.57", "new": "5.0"}[side], "--transformers"
        )
        found = read_libraries(Tree(str(self.verl), "verl", "", "--verl"), [library], "3.11.1")
        assert isinstance(found, LibraryUses)
        return found

    def findings(self, side: str) -> list[Finding]:
        return list(run_check(library_import_missing, self.uses(side)).findings)

    def plan(self):
        finding = self.findings("new")[0]
        assert finding.fix == library_import.id
        return library_import.plan(finding, self.uses("new"), SourceFiles(), Marker())

    def repair(self) -> None:
        assert self.findings("old") == []
        plan = self.plan()
        assert not isinstance(plan, Refusal), plan.reason
        for change in plan:
            change.path.write_bytes(change.after)
        assert self.findings("new") == self.findings("old") == []

    def run(self, side: str) -> dict:
        with importable(self.sides[side].parent, "transformers"):
            names: dict = {}
            exec(compile(self.main.read_bytes(), "main.py", "exec"), names)
            return names


FORMS = {
    "alone": "from transformers import AutoModelForVision2Seq\n",
    "among others": "from transformers import AutoConfig, AutoModelForVision2Seq\nassert AutoConfig\n",
    "under another name": "from transformers import AutoModelForVision2Seq as V\nAutoModelForVision2Seq = V\n",
    "in a function": "def f():\n    from transformers import AutoModelForVision2Seq\n    return AutoModelForVision2Seq\nAutoModelForVision2Seq = f()\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_repaired_file_works_on_both_sides(tmp_path, form):
    case = Case(tmp_path, FORMS[form])
    case.repair()
    assert [case.run(side)["AutoModelForVision2Seq"].side for side in ("old", "new")] == ["old", "new"]


def test_all_importing_files_are_in_one_plan(tmp_path):
    case = Case(tmp_path, "import verl.other\n" + FORMS["alone"], other=FORMS["alone"])
    plan = case.plan()
    assert not isinstance(plan, Refusal)
    assert {change.path.name for change in plan} == {"main_ppo.py", "other.py"}
    case.repair()


def test_moved_function_is_imported_from_its_new_module(tmp_path):
    case = Case(tmp_path, "from transformers.gone import moved\n")
    case.repair()
    assert [case.run(side)["moved"].__name__ for side in ("old", "new")] == ["moved", "moved"]


def test_shared_import_line_is_refused(tmp_path):
    plan = Case(tmp_path, "x = 1; from transformers import AutoModelForVision2Seq\n").plan()
    assert isinstance(plan, Refusal)
    assert "main_ppo.py:1: the import shares its line" in plan.reason


@pytest.mark.real
@pytest.mark.parametrize("version", [thorough("0.6.1"), "0.7.0"])
@pytest.mark.usefixtures("parsed_once")
def test_real_verl_with_both_transformers(wheel_tree, tmp_path, version):
    folder = tmp_path / "verl"
    shutil.copytree(wheel_tree("verl", version) / "verl", folder)

    def findings(release: str) -> tuple[LibraryUses, list[Finding]]:
        tree = Tree(str(wheel_tree("transformers", release) / "transformers"), "transformers", release, "")
        uses = read_libraries(Tree(str(folder), "verl", version, ""), [tree], "3.11.1")
        found = run_check(library_import_missing, uses).findings
        return uses, [finding for finding in found if finding.fix and finding.severity != "info"]

    assert findings("4.57.3")[1] == []
    uses, (finding, *_) = findings("5.0.0")
    assert "AutoModelForVision2Seq" in finding.message
    plan = library_import.plan(finding, uses, SourceFiles(), Marker())
    assert not isinstance(plan, Refusal), plan.reason
    for change in plan:
        change.path.write_bytes(change.after)
    assert not [finding for finding in findings("5.0.0")[1] if "Vision2Seq" in finding.message]
    assert findings("4.57.3")[1] == []
