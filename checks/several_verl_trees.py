"""PY111: there is more than one verl."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.fact_trees import Tree, VerlTrees
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Severity, check
from verl_doctor.toolkit.text import counted

_CHECKOUT = Tree("/home/me/verl/verl", "verl", "0.6.1", "the current folder")
_INSTALLED = Tree("/env/lib/python3.11/site-packages/verl", "verl", "0.5.0", "site-packages")
_NESTED = Tree("/home/me/verl/verl/verl", "verl.verl", "0.6.1", "nested inside /home/me/verl")
_ABOVE = Tree("/home/me/verl/verl", "verl", "0.6.1", "/home/me/verl, above the current folder")
_CWD_FIRST = "python -m puts the current folder first on the path"


@check(
    "PY111",
    severity="warning",
    examples=[
        Example("one verl", (VerlTrees(_INSTALLED, "it comes first on the interpreter's path"),)),
        Example(
            "a checkout and an installed wheel", (VerlTrees(_CHECKOUT, _CWD_FIRST, (_INSTALLED,)),), "runs"
        ),
        Example(
            "a copy of the tree inside itself",
            (VerlTrees(_CHECKOUT, _CWD_FIRST, (_NESTED,)),),
            "inside itself",
        ),
        Example(
            "a checkout above the current folder that Python does not see",
            (VerlTrees(_INSTALLED, "it comes first on the interpreter's path", (_ABOVE,)),),
            "is not used",
        ),
    ],
)
def several_verl_trees(trees: VerlTrees) -> Iterator[Finding]:
    """There is more than one verl.

    ## Why it matters

    Only one of them runs, and which one depends on the folder that the job is started from: `python -m` puts the current
    folder first, Ray workers and `torchrun` scripts may not. An edit in the other tree then has no effect, or has one on
    some workers only. A copy of the tree inside itself (`verl/verl/`, left by a copy one folder too deep) is the
    worst case: it is imported by whoever starts one folder further down, and looks like the real one.

    ## How to fix

    Keep one. Remove the nested copy after comparing the two. With a checkout, install it (`pip install --no-deps -e .`) so
    that every worker finds it wherever it starts; without one, start from a folder that holds no `verl`.
    """
    nested = [tree for tree in trees.others if tree.found_in.startswith("nested")]
    unseen = [tree for tree in trees.others if _unseen(tree)]
    rivals = [tree for tree in trees.others if tree not in nested and tree not in unseen]
    runs = f"{_named(trees.imported)} runs"
    if nested:
        yield _finding(
            f"{nested[0].folder} is a copy of verl inside itself; {runs}: {trees.why}",
            trees,
            nested,
            f"Compare {nested[0].folder} with the tree around it, then remove it",
            "error",
        )
    if rivals:
        yield _finding(
            f"{runs}, not {_listed(rivals)}: {trees.why}", trees, rivals, _remedy(rivals[0]), "warning"
        )
    if unseen:
        yield _finding(f"{_listed(unseen)} is not used: {runs}, since {trees.why}", trees, unseen, "", "info")


def _unseen(tree: Tree) -> bool:
    """Whether the tree lies near the current folder, but not where Python looks."""
    return tree.found_in.startswith("vendored") or tree.found_in.endswith("above the current folder")


def _finding(message: str, trees: VerlTrees, others: list[Tree], remedy: str, severity: Severity) -> Finding:
    return Finding(
        message,
        Evidence(
            found=", ".join(_named(tree) for tree in (trees.imported, *others)),
            wanted="one verl",
            read_from=f"{trees.imported.folder} is imported: {trees.why}",
        ),
        location=Location(others[0].folder),
        remedy=remedy,
        severity=severity,
        also=tuple(Location(tree.folder) for tree in others[1:]),
    )


def _remedy(other: Tree) -> str:
    if other.found_in == "site-packages":
        return "Uninstall the wheel (pip uninstall verl) and install the checkout: pip install --no-deps -e ."
    return f"Start from another folder, or remove {other.folder}, so that every worker imports the same tree"


def _listed(trees: list[Tree]) -> str:
    rest = len(trees) - 1
    return _named(trees[0]) + (f" or {counted(rest, 'other')}" if rest else "")


def _named(tree: Tree) -> str:
    return f"{tree.folder} ({tree.version or 'version not said'})"
