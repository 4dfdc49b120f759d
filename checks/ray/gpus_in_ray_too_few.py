"""RAY111: the cluster has fewer free GPUs than the job requests."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import GPUS, NODES, configured
from verl_doctor.checks.shared.ray import a_cluster, a_node, free, joins, requested_of_ray, total
from verl_doctor.checks.shared.ray_holders import holders, in_words
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayActor, RayGroup, RayJob
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Severity, Subject, check
from verl_doctor.toolkit.text import counted

_TWO_NODES = configured(f"{NODES}=2", f"{GPUS}=8")
_TAKEN = a_node(free={"CPU": 40.0})
_OVER, _RUNS = RayJob("01000000", finished=True), RayJob("02000000")
_GROUP = RayGroup(
    group="ab" * 16,
    state="CREATED",
    name="verl_group_8:0",
    namespace="",
    job="01000000",
    bundles=({"GPU": 8.0},),
    nodes=("n1",),
    detached=True,
)
_ACTOR = RayActor(actor="cd" * 16, state="ALIVE", name="engine", job="02000000", needs={"GPU": 8.0})


def _examples() -> list[Example]:
    return [
        Example("enough", (joins(a_cluster(a_node(), a_node("n2", address="10.0.0.6"))), *_TWO_NODES)),
        Example("nothing is joined", (RayClusters((a_cluster(),)), *_TWO_NODES)),
        Example("the table was not read", (joins(a_cluster(unread=("nodes",))), *_TWO_NODES)),
        Example(
            "a node is missing",
            (joins(a_cluster()), *_TWO_NODES),
            "requests 16 GPUs (2 nodes with 8 each), but the Ray at 10.0.0.5:6379 has 8",
        ),
        Example(
            "a node that died",
            (joins(a_cluster(a_node(), a_node("n2", address="10.0.0.6", alive=False))), *_TWO_NODES),
            "has 8",
        ),
        Example(
            "the machine itself has no more, which CFG111 reports",
            (
                joins(a_cluster(a_node(resources={"GPU": 1.0}))),
                *configured(),
                Resources(gpus=(Gpu(name="NVIDIA H200", memory=143771),), cpus=64, memory=None),
            ),
        ),
        Example(
            "a raylet that was started without GPUs",
            (joins(a_cluster(a_node(resources={"CPU": 64.0}))), *configured()),
            "has 0",
        ),
        Example(
            "enough in all, spread over too many",
            (joins(a_cluster(*(a_node(f"n{n}", resources={"GPU": 4.0}) for n in range(4)))), *_TWO_NODES),
            "no node of the Ray at 10.0.0.5:6379 has 8",
        ),
        Example(
            "left by a finished job",
            (joins(a_cluster(_TAKEN, jobs=(_OVER,), groups=(_GROUP,))), *configured()),
            "0 of 8 are free",
        ),
        Example(
            "another job is running",
            (joins(a_cluster(_TAKEN, jobs=(_RUNS,), actors=(_ACTOR,))), *configured()),
            "0 of 8 are free",
        ),
    ]


@check("RAY111", phase="ray", examples=_examples)
def gpus_in_ray_too_few(
    clusters: RayClusters, configuration: Configuration, resources: Resources | Unknown
) -> Iterator[Finding]:
    """The cluster has fewer free GPUs than the job requests.

    ## Why it matters

    verl compares what is free with `trainer.nnodes` times `trainer.n_gpus_per_node` and stops (`Total
    available GPUs 8 is less than total desired GPUs 16`), or waits forever for a placement group. A node that
    died, a raylet that was started where no GPU was visible (`ray start` before `module load`,
    CUDA_VISIBLE_DEVICES, another user's `--num-gpus=0`) and the leftovers of an earlier job all look the same
    to the job.

    ## How to fix

    The finding lists each node with its GPUs, and who holds those in use. `verl-doctor clean` shows and
    removes what finished jobs left behind. A raylet counts its GPUs only once, at its start.
    """
    cluster = clusters.chosen
    nodes, each = requested_of_ray(configuration)
    if cluster is None or not nodes or not cluster.has_read("nodes"):
        return
    if len(cluster.alive) == 1 and _fewer_here(resources, each):
        return
    requested, have = nodes * each, total(cluster.alive, "GPU")
    enough = [node for node in cluster.alive if node.resources.get("GPU", 0) >= each]
    beginning = (
        f"the job requests {counted(requested, 'GPU')} ({counted(nodes, 'node')} with {each} each), but"
    )
    wanted = f"{NODES}={nodes}, {GPUS}={each}"
    at = f"the GCS at {cluster.address}"
    if have < requested:
        yield Finding(
            f"{beginning} the Ray at {cluster.address} has {have:g}",
            Evidence(_nodes(cluster), wanted, at),
            subject=Subject("resource", "GPU"),
            remedy=_remedy(cluster),
        )
    elif len(enough) < nodes:
        some = f"only {len(enough)} of {len(cluster.alive)} nodes" if enough else "no node"
        yield Finding(
            f"{beginning} {some} of the Ray at {cluster.address} has {each}",
            Evidence(_nodes(cluster), wanted, at),
            subject=Subject("resource", "GPU"),
            remedy=f"set {NODES} and {GPUS} to what the nodes have",
        )
    elif (idle := free(cluster.alive, "GPU")) < requested:
        found = holders(cluster, "GPU")
        left = [holder for holder in found if holder.left]
        severity: Severity | None = None if left or not found else "warning"
        yield Finding(
            f"{beginning} only {idle:g} of {have:g} are free in the Ray at {cluster.address}",
            Evidence(in_words(found, "GPU") or "Ray does not report who holds them", wanted, at),
            subject=Subject("resource", "GPU"),
            remedy="run verl-doctor clean to see what finished jobs left behind"
            if left
            else "wait for that job, or stop it",
            severity=severity,
        )


def _fewer_here(resources: Resources | Unknown, each: int) -> bool:
    """Whether this machine itself has fewer, which CFG111 reports."""
    seen = None if isinstance(resources, Unknown) else resources.gpus
    return seen is not None and len(seen) < each


def _nodes(cluster: RayCluster) -> str:
    """The nodes with their GPUs."""
    known = sorted(cluster.nodes, key=lambda node: not node.alive)[:12]
    return "; ".join(
        f"{node.address}: {node.resources.get('GPU', 0):g}{'' if node.alive else ' (dead)'}" for node in known
    )


def _remedy(cluster: RayCluster) -> str:
    none = next((node.address for node in cluster.alive if not node.resources.get("GPU")), "")
    if none:
        return (
            f"on {none}, run nvidia-smi -L and echo $CUDA_VISIBLE_DEVICES, then restart its raylet where "
            "GPUs are visible"
        )
    return (
        f"join the missing nodes with ray start --address={cluster.address}, or request what the cluster has"
    )
