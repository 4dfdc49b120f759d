"""RAY104: the cluster runs another Ray version than the job."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import a_cluster, joins
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _installed(version: str) -> LibraryTrees:
    return LibraryTrees((Tree(folder="/env/ray", module="ray", version=version, found_in="site-packages"),))


def _examples() -> list[Example]:
    return [
        Example("the same", (joins(a_cluster()), _installed("2.60.0"))),
        Example("an unknown version", (joins(a_cluster(ray="")), _installed("2.60.0"))),
        Example(
            "a cluster that the job does not join",
            (RayClusters((a_cluster(ray="2.9.0"),)), _installed("2.60.0")),
        ),
        Example(
            "another release",
            (joins(a_cluster(ray="2.60.0")), _installed("2.55.0")),
            "runs Ray 2.60.0, but this environment has 2.55.0",
        ),
    ]


@check("RAY104", phase="ray", examples=_examples)
def ray_version_differs(clusters: RayClusters, trees: LibraryTrees) -> Iterator[Finding]:
    """The cluster runs another Ray version than the job.

    ## Why it matters

    Ray compares the versions when a driver or a node joins, and accepts no difference: `RuntimeError: Version
    mismatch: The cluster was started with: Ray: ...`. Some pairs do not get that far: Ray 2.49 waits 40
    seconds for a cluster of 2.60 and then raises a `ConnectionError` with an empty message.

    ## How to fix

    Install the cluster's version in this environment, or restart the cluster from this environment on every
    node.
    """
    cluster = clusters.chosen
    tree = next((tree for tree in trees.trees if tree.module == "ray"), None)
    if cluster is None or tree is None or not cluster.ray or not tree.version or cluster.ray == tree.version:
        return
    yield Finding(
        (
            f"the cluster at {cluster.address} runs Ray {cluster.ray}, but this environment has "
            f"{tree.version}: the job cannot join it"
        ),
        Evidence(
            f"Ray {tree.version} in {tree.folder}", f"Ray {cluster.ray}", f"the GCS at {cluster.address}"
        ),
        subject=Subject("package", "ray"),
        remedy=f"run pip install 'ray=={cluster.ray}', or restart the cluster with Ray {tree.version}",
        fix="consistent-install",
    )
