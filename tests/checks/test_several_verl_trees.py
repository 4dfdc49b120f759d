"""Which of several trees is told, and how loudly."""

from __future__ import annotations

from verl_doctor.checks.several_verl_trees import several_verl_trees
from verl_doctor.toolkit.fact_trees import Tree, VerlTrees
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.testing import run_check

HERE = Tree("/me/verl/verl", "verl", "0.6.1", "the current folder")
NESTED = Tree("/me/verl/verl/verl", "verl.verl", "0.6.1", "nested inside /me/verl")
WHEEL = Tree("/env/site-packages/verl", "verl", "0.5.0", "site-packages")
ON_PATH = Tree("/other/verl", "verl", "", "the interpreter's path (PYTHONPATH or an editable install)")


def judged(*others: Tree) -> list[Finding]:
    return list(run_check(several_verl_trees, VerlTrees(HERE, "it comes first", others)).findings)


def vendored(number: int) -> Tree:
    return Tree(f"/me/old-{number}/verl", "verl", "0.4.1", f"vendored inside old-{number}")


def test_a_rival_is_a_warning_that_says_which_one_runs_and_why() -> None:
    (finding,) = judged(WHEEL)
    assert finding.severity == "warning"
    assert (
        finding.message == "/me/verl/verl (0.6.1) runs, not /env/site-packages/verl (0.5.0): it comes first"
    )


def test_rivals_share_one_finding() -> None:
    (finding,) = judged(WHEEL, ON_PATH)
    assert "or 1 other" in finding.message
    assert [str(place) for place in finding.also] == ["/other/verl"]


def test_a_nested_copy_is_an_error_of_its_own() -> None:
    assert [finding.severity for finding in judged(NESTED, WHEEL)] == ["error", "warning"]


def test_a_folder_full_of_checkouts_is_one_note() -> None:
    (finding,) = judged(*(vendored(number) for number in range(9)))
    assert finding.severity == "info"
    assert "8 others" in finding.message
