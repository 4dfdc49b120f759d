"""RAY113: nodes of the cluster have died and have not come back."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import a_cluster, a_node, joins, resources_text
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayNode
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

_INTENDED_ENDS = frozenset({"EXPECTED_TERMINATION", "AUTOSCALER_DRAIN_IDLE", "AUTOSCALER_DRAIN_PREEMPTED"})
_MOST = 6


def _dead(address: str, end: str = "UNEXPECTED_TERMINATION", died: str = "health check failed") -> RayNode:
    return a_node(f"dead-{address}", address=address, alive=False, free={}, end=end, died=died)


def _examples() -> list[Example]:
    return [
        Example("all alive", (joins(a_cluster()),)),
        Example(
            "stopped on purpose", (joins(a_cluster(a_node(), _dead("10.0.0.6", "EXPECTED_TERMINATION"))),)
        ),
        Example("the node came back", (joins(a_cluster(a_node(), _dead("10.0.0.5"))),)),
        Example(
            "the table was not read", (joins(a_cluster(a_node(), _dead("10.0.0.6"), unread=("nodes",))),)
        ),
        Example(
            "one node of two",
            (joins(a_cluster(a_node(), _dead("10.0.0.6"))),),
            "1 node of the Ray at 10.0.0.5:6379 died: 10.0.0.6",
        ),
    ]


@check("RAY113", severity="warning", examples=_examples)
def nodes_of_cluster_died(clusters: RayClusters) -> Iterator[Finding]:
    """Nodes of the cluster have died and have not come back.

    ## Why it matters

    These nodes were not stopped on purpose: Ray's head lost contact with them. Their GPUs are missing, and a
    job that requests all of them waits or stops (`Total available GPUs ... is less than total desired GPUs`).
    Actors on these nodes are dead.

    ## How to fix

    Check the node: is it up, was its raylet killed (`dmesg`, memory), can it reach the head? Then run `ray
    start --address=` there. Its log is `raylet.out` in its session folder.
    """
    cluster = clusters.chosen
    if cluster is None or not cluster.has_read("nodes"):
        return
    back = {node.address for node in cluster.alive}
    lost = [
        node
        for node in cluster.nodes
        if not node.alive and node.end not in _INTENDED_ENDS and node.address not in back
    ]
    different = {node.address: node for node in lost}
    if not different:
        return
    last = max(different.values(), key=lambda node: node.ended)
    has = {name: last.resources[name] for name in ("GPU", "CPU") if name in last.resources}
    yield Finding(
        f"{counted(len(different), 'node')} of the Ray at {cluster.address} died: {listed(different, _MOST)}",
        Evidence(
            (
                f"{last.host or last.address} with {resources_text(has) or 'its resources'}: "
                f"{last.died or last.end or 'Ray reports no reason'}"
            ),
            "all nodes alive",
            f"the GCS at {cluster.address}",
        ),
        subject=Subject("node", ", ".join(sorted(different))),
        remedy=f"find the cause, then run on each: ray start --address={cluster.address}",
    )
