"""PY111: there is more than one verl."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Severity, Subject, check
from verl_doctor.toolkit.text import counted, listed

_CHECKOUT = Tree(folder="/home/me/verl/verl", module="verl", version="0.6.1", found_in="the current folder")
_INSTALLED = Tree(
    folder="/env/lib/python3.11/site-packages/verl", module="verl", version="0.5.0", found_in="site-packages"
)
_NESTED = Tree(
    folder="/home/me/verl/verl/verl",
    module="verl.verl",
    version="0.6.1",
    found_in="nested inside /home/me/verl",
)
_INNER = Tree(folder="/home/me/verl/verl/verl", module="verl", version="0.6.1", found_in="the current folder")
_OUTER = Tree(
    folder="/home/me/verl/verl",
    module="verl",
    version="0.6.1",
    found_in="around /home/me/verl/verl",
    project="/home/me/verl",
    place="outer",
)
_VENDORED = Tree(
    folder="/home/me/agents/verl", module="agents.verl", version="0.4.1", found_in="vendored inside agents"
)
_ABOVE = Tree(
    folder="/home/me/verl/verl",
    module="verl",
    version="0.6.1",
    found_in="/home/me/verl, above the current folder",
)
_CWD_FIRST = "python -m puts the current folder first on the path"
_SHOWN = 3
_PATH_FIRST = "it comes first on the interpreter's path"


def _examples() -> list[Example]:
    return [
        Example("a single verl", (VerlTrees(imported=_INSTALLED, why=_PATH_FIRST),)),
        Example(
            "a checkout and an installed wheel",
            (VerlTrees(imported=_CHECKOUT, why=_CWD_FIRST, others=(_INSTALLED,)),),
            "runs",
        ),
        Example(
            "a copy of the tree inside itself",
            (VerlTrees(imported=_CHECKOUT, why=_CWD_FIRST, others=(_NESTED,)),),
            "inside itself",
        ),
        Example(
            "the copy inside itself is the one that runs",
            (VerlTrees(imported=_INNER, why=_CWD_FIRST, others=(_OUTER,)),),
            "a copy inside /home/me/verl/verl",
        ),
        Example(
            "a checkout above the current folder that Python does not see",
            (VerlTrees(imported=_INSTALLED, why=_PATH_FIRST, others=(_ABOVE,)),),
            "is not used",
        ),
        Example(
            "an installed wheel, and a tree inside another package",
            (VerlTrees(imported=_INSTALLED, why=_PATH_FIRST, others=(_VENDORED,)),),
            "runs only for code that imports agents.verl",
        ),
    ]


@check("PY111", phase="import", severity="warning", examples=_examples)
def several_verl_trees(trees: VerlTrees) -> Iterator[Finding]:
    """There is more than one verl.

    ## Why it matters

    Only one of them runs, and which one depends on the folder that the job is started from: `python -m` puts
    the current folder first, Ray workers and `torchrun` scripts may not. An edit in the other tree then has
    no effect, or has one on some workers only. A copy of the tree inside itself (`verl/verl/`, left by a copy
    one folder too deep) is the worst case: it is imported by a job that starts one folder further down, and
    looks like the real one. A tree inside another package (`agents/verl/`) runs only for code that imports it
    as `agents.verl`; a plain `import verl`, also one in that very tree, takes the other.

    ## How to fix

    Keep one. Remove the nested copy after comparing the two. With a checkout, install it (`pip install
    --no-deps -e .`) so that every worker finds it wherever it starts; without one, start from a folder that
    holds no `verl`. The launch script shows which tree of a package the job imports; `verl-doctor check
    --verl DIR` examines that one.
    """
    nested = [tree for tree in trees.others if tree.nested]
    vendored = [tree for tree in trees.others if tree.vendored]
    unseen = [tree for tree in trees.others if _unseen(tree)]
    outer = [tree for tree in trees.others if tree.outer]
    other_trees = [tree for tree in trees.others if tree not in (*nested, *vendored, *unseen, *outer)]
    runs = f"{_named(trees.imported)} runs"
    if nested:
        yield _finding(
            f"{nested[0].folder} is a copy of verl inside itself; {runs}: {trees.why}",
            trees,
            nested,
            f"compare {nested[0].folder} with the tree around it, then remove it",
            "warning",
        )
    if outer:
        yield _finding(
            f"{trees.imported.folder} runs, a copy inside {_named(outer[0])}: {trees.why}",
            trees,
            outer,
            _remedy_of_copy(trees.imported, outer[0]),
            "warning",
        )
    if other_trees:
        remedy = _remedy(trees.imported, other_trees[0])
        yield _finding(
            f"{runs}, not {_listed(other_trees)}: {trees.why}", trees, other_trees, remedy, "warning"
        )
    if vendored:
        yield _finding(_who_runs_when(trees, vendored), trees, vendored, _examine(vendored[0]), "warning")
    if unseen:
        yield _finding(f"{_listed(unseen)} is not used: {runs}, since {trees.why}", trees, unseen, "", "info")


def _unseen(tree: Tree) -> bool:
    """Whether the tree is in or near the current folder, but not on Python's path."""
    return tree.place in ("off the path", "above the current folder")


def _who_runs_when(trees: VerlTrees, vendored: list[Tree]) -> str:
    first = trees.imported
    taken = f"`import verl` takes {_named(first)}, since {trees.why}"
    if first.vendored:
        taken = f"{_named(first)} runs only for code that imports {first.module}"
    others = (f"{_named(tree)} runs only for code that imports {tree.module}" for tree in vendored)
    return f"{taken}; {listed(others, _SHOWN)}"


def _finding(message: str, trees: VerlTrees, others: list[Tree], remedy: str, severity: Severity) -> Finding:
    return Finding(
        message,
        Evidence(
            found=", ".join(_named(tree) for tree in (trees.imported, *others)),
            wanted="one verl",
            read_from=f"{trees.imported.folder} was examined: {trees.why}",
        ),
        location=Location(others[0].folder),
        remedy=remedy,
        severity=severity,
        also=tuple(Location(tree.folder) for tree in others[1:]),
        subject=Subject("package", "verl", others[0].folder),
    )


def _remedy(runs: Tree, other: Tree) -> str:
    """How to get from two trees to one.

    It depends on which tree is installed, and whether the other can be.
    """
    if other.place != "site-packages" or runs.place == "site-packages":
        return (
            f"start from another folder, or remove {other.folder}, so that every worker imports the same tree"
        )
    keep = (
        f"install this one: pip uninstall verl, then pip install --no-deps -e {shlex.quote(runs.project)}"
        if runs.project
        else f"pip uninstall verl, and export PYTHONPATH={shlex.quote(_parent(runs))} for every worker"
    )
    leave = (
        "start from another folder"
        if runs.place == "current folder"
        else f"remove {_parent(runs)} from the path"
    )
    return f"{keep} (keeps the one that runs); or {leave} (runs the installed one)"


def _remedy_of_copy(copy: Tree, outer: Tree) -> str:
    """How to run the tree around a copy instead of the copy."""
    use = (
        f"pip install --no-deps -e {shlex.quote(outer.project)}"
        if outer.project
        else f"export PYTHONPATH={shlex.quote(_parent(outer))} for every worker"
    )
    return (
        f"start the job in {_parent(outer)}, or {use}; then compare {_parent(copy)} with it and remove the "
        "copy"
    )


def _examine(tree: Tree) -> str:
    return (
        f"if the job imports {tree.module}, examine that tree: verl-doctor check --verl "
        f"{shlex.quote(tree.folder)}; if nothing does, remove it"
    )


def _parent(tree: Tree) -> str:
    return str(PurePath(tree.folder).parent)


def _listed(trees: list[Tree]) -> str:
    rest = len(trees) - 1
    return _named(trees[0]) + (f" or {counted(rest, 'other')}" if rest else "")


def _named(tree: Tree) -> str:
    return f"{tree.folder} ({tree.version or 'version unknown'})"
