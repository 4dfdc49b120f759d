"""PY110: no verl was found."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.installed.trees import OFF_THE_PATH, Tree, VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_INSTALLED = VerlTrees(
    imported=Tree(
        folder="/env/lib/python3.11/site-packages/verl",
        module="verl",
        version="0.6.1",
        found_in="site-packages",
    ),
    why="first",
)
_HIDDEN = VerlTrees(
    imported=Tree(folder="/home/me/verl/verl", module="verl", version="0.6.1", found_in=OFF_THE_PATH),
    why="no verl is on the path",
)
_NOWHERE = (
    VerlTrees,
    Absent("no verl was found, neither in this environment nor in the current folder or above it"),
)


def _examples() -> list[Example]:
    return [
        Example("verl is installed", (_INSTALLED,)),
        Example("no verl anywhere", (_NOWHERE,), "no verl was found"),
        Example("the only verl is hidden by PYTHONSAFEPATH", (_HIDDEN,), "will not find /home/me/verl/verl"),
        Example("the trees could not be looked for", ((VerlTrees, Unknown("the disk did not answer")),)),
    ]


@check("PY110", severity="warning", requires={"PY100"}, examples=_examples)
def verl_not_found(trees: VerlTrees | Unknown) -> Iterator[Finding]:
    """No verl was found.

    ## Why it matters

    Without verl most rules have nothing to check, so a quiet report means little. Usually verl is installed,
    but not in the environment or folder that was examined. With `PYTHONSAFEPATH` set, Python does not look
    into the current folder either.

    ## How to fix

    Name its place: `verl-doctor check --python PATH/TO/bin/python` for the environment of the job, or
    `verl-doctor check --verl DIR` for a checkout.
    """
    if isinstance(trees, Absent):
        yield Finding(
            f"there is nothing to examine: {trees.reason}",
            Evidence(found=trees.reason, wanted="a verl tree to examine"),
            remedy="name the job's environment or checkout: "
            "verl-doctor check --python PATH/TO/bin/python, or verl-doctor check --verl DIR",
            subject=Subject("package", "verl"),
        )
    elif not isinstance(trees, Unknown) and trees.imported.place == "off the path":
        yield Finding(
            f"a job will not find {trees.imported.folder}: {trees.why}",
            Evidence(found=trees.why, wanted="a verl that Python can import"),
            remedy="unset PYTHONSAFEPATH, or add the folder that contains this verl to PYTHONPATH",
            subject=Subject("package", "verl", trees.imported.folder),
        )
