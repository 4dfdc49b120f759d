"""RAY105: the cluster runs another Python version than the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.checks.shared.ray import a_cluster, joins
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.match import LEVEL, RayMatch
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_STRICT, _OLD, _MINOR = (
    RayMatch(variable=True),
    RayMatch(variable=False),
    RayMatch(variable=True, level="minor"),
)


def _here(version: str) -> Interpreter:
    return replace(PYTHON, version=version)


def _examples() -> list[Example]:
    return [
        Example("the same", (joins(a_cluster(python="3.11.7")), _here("3.11.7"), _STRICT)),
        Example("an unknown version", (joins(a_cluster(python="")), _here("3.11.7"), _STRICT)),
        Example(
            "a patch level that Ray is set to accept",
            (joins(a_cluster(python="3.11.7")), _here("3.11.2"), _MINOR),
        ),
        Example(
            "another minor version",
            (joins(a_cluster(python="3.11.7")), _here("3.12.1"), _MINOR),
            "runs Python 3.11.7, but this environment has 3.12.1",
        ),
        Example(
            "another patch level",
            (joins(a_cluster(python="3.11.7")), _here("3.11.2"), _STRICT),
            "the patch version must match too",
        ),
        Example(
            "a Ray without that setting",
            (joins(a_cluster(python="3.11.7")), _here("3.11.2"), _OLD),
            "the patch version must match too",
        ),
    ]


@check("RAY105", phase="ray", examples=_examples)
def cluster_python_differs(
    clusters: RayClusters, interpreter: Interpreter, match: RayMatch
) -> Iterator[Finding]:
    """The cluster runs another Python version than the job.

    ## Why it matters

    Ray compares the whole version, patch level included, when a driver or a node joins: `RuntimeError:
    Version mismatch: The cluster was started with: ... Python: 3.11.7 ... This process ... was started with:
    ... Python: 3.11.2`. Functions and classes travel as bytecode, which differs between minor versions.

    ## How to fix

    Recreate the environment with the cluster's Python (`uv venv --python 3.11.7`), or start the cluster with
    this one on every node. If only the patch level differs, later releases of Ray accept it with
    RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL=minor in the environment of the job and of each `ray start`; the
    finding states whether this one does.
    """
    cluster = clusters.chosen
    if cluster is None or not cluster.python or cluster.python == interpreter.version:
        return
    only_patch = cluster.python.split(".")[:2] == interpreter.version.split(".")[:2]
    if only_patch and match.level == "minor":
        return
    why = "the patch version must match too" if only_patch else "it cannot be joined"
    yield Finding(
        (
            f"the cluster at {cluster.address} runs Python {cluster.python}, but this environment has "
            f"{interpreter.version}: {why}"
        ),
        Evidence(
            f"Python {interpreter.version}, {interpreter.executable}",
            f"Python {cluster.python}",
            f"the GCS at {cluster.address}",
        ),
        subject=Subject("interpreter", "python"),
        remedy=f"use an environment with Python {cluster.python}"
        + (f"; or export {LEVEL}=minor" if only_patch and match.variable else "")
        + (f", or restart the cluster with Python {interpreter.version}" if not only_patch else ""),
    )
