"""Which of several trees is reported, and with which severity."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.checks.interpreter.several_verl_trees import several_verl_trees
from verl_doctor.toolkit.collectors.installed.trees import OFF_THE_PATH, Tree, VerlTrees
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.testing import run_check

HERE = Tree("/me/verl/verl", "verl", "0.6.1", "the current folder")
NESTED = Tree("/me/verl/verl/verl", "verl.verl", "0.6.1", "nested inside /me/verl")
WHEEL = Tree("/env/site-packages/verl", "verl", "0.5.0", "site-packages")
ON_PATH = Tree("/other/verl", "verl", "", "PYTHONPATH or an editable install")


def judged(*others: Tree) -> list[Finding]:
    return list(run_check(several_verl_trees, VerlTrees(HERE, "it comes first", others)).findings)


def vendored(number: int) -> Tree:
    package = f"agents{number}"
    return Tree(f"/me/{package}/verl", f"{package}.verl", "0.4.1", f"vendored inside {package}")


def test_competing_tree_is_a_warning_that_states_which_one_runs() -> None:
    (finding,) = judged(WHEEL)
    assert finding.severity == "warning"
    assert (
        finding.message == "/me/verl/verl (0.6.1) runs, not /env/site-packages/verl (0.5.0): it comes first"
    )


def test_competing_trees_share_one_finding() -> None:
    (finding,) = judged(WHEEL, ON_PATH)
    assert "or 1 other" in finding.message
    assert [str(place) for place in finding.also] == ["/other/verl"]


def test_nested_copy_is_a_separate_warning() -> None:
    assert [finding.severity for finding in judged(NESTED, WHEEL)] == ["warning", "warning"]


def test_vendored_tree_is_reported_with_its_use_and_how_to_examine_it() -> None:
    trees = VerlTrees(WHEEL, "it comes first on the interpreter's path", (vendored(1),))
    (finding,) = run_check(several_verl_trees, trees).findings
    assert finding.severity == "warning"
    assert finding.message == (
        "`import verl` takes /env/site-packages/verl (0.5.0), since it comes first on the interpreter's path; "
        "/me/agents1/verl (0.4.1) runs only for code that imports agents1.verl"
    )
    assert "verl-doctor check --verl /me/agents1/verl" in finding.remedy
    assert "pip" not in finding.remedy


def test_vendored_trees_are_not_imported_as_verl() -> None:
    (finding,) = run_check(
        several_verl_trees, VerlTrees(vendored(1), "it is all there is", (vendored(2),))
    ).findings
    assert "import verl" not in finding.message
    assert finding.message.endswith("runs only for code that imports agents2.verl")


def test_many_packages_with_a_verl_share_one_finding() -> None:
    (finding,) = judged(*(vendored(number) for number in range(9)))
    assert finding.message.endswith("and 6 more")


def test_tree_hidden_by_safe_path_is_a_note() -> None:
    hidden = Tree("/me/verl/verl", "verl", "0.6.1", OFF_THE_PATH)
    (finding,) = run_check(several_verl_trees, VerlTrees(WHEEL, "it comes first", (hidden,))).findings
    assert (finding.severity, "is not used" in finding.message) == ("info", True)


def test_checkout_remedy_depends_on_its_project_folder() -> None:
    assert "pip uninstall verl, and export PYTHONPATH=/me/verl for every worker" in judged(WHEEL)[0].remedy
    here = replace(HERE, project="/me/my verl")
    (finding,) = run_check(several_verl_trees, VerlTrees(here, "it comes first", (WHEEL,))).findings
    assert "pip install --no-deps -e '/me/my verl'" in finding.remedy
    assert finding.remedy.endswith("or start from another folder (runs the installed one)")


def test_running_installed_tree_is_not_uninstalled() -> None:
    (finding,) = run_check(several_verl_trees, VerlTrees(WHEEL, "it comes first", (ON_PATH,))).findings
    assert "pip" not in finding.remedy
