"""CUDA162: the nodes of the cluster have different kinds of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.nodes._fleet_examples import fleet_of, fleet_of_kinds
from verl_doctor.toolkit.collectors.ray.fleet import UNSEEN, Fleet, NodeKind
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

_NAMED = 6


def _examples() -> list[Example]:
    return [
        Example(
            "one kind, and a head without GPUs", (fleet_of_kinds(("NVIDIA H200", 8, ""), ("", 1, "head")),)
        ),
        Example("one kind", (fleet_of(8),)),
        Example(
            "two groups",
            (fleet_of_kinds(("NVIDIA H200", 64, ""), ("NVIDIA H100 80GB HBM3", 32, "node[65-96]")),),
            "64 nodes with NVIDIA H200, 32 nodes with NVIDIA H100 80GB HBM3 (node[65-96])",
        ),
        Example(
            "one node with another kind",
            (fleet_of_kinds(("NVIDIA H200", 64, ""), ("NVIDIA A100-SXM4-80GB", 1, "node65")),),
            "node65",
        ),
    ]


@check("CUDA162", severity="info", cost="cluster", examples=_examples)
def several_kinds_of_gpus(fleet: Fleet) -> Iterator[Finding]:
    """The nodes of the cluster have different kinds of GPUs.

    ## Why it matters

    Ray places the workers of a job on any node with free GPUs. All workers of a group wait for the slowest,
    only as much memory as the smallest GPU has can be used, and kernels are compiled for each kind. A single
    node of another kind is a warning, because it is unlikely to be intended.

    ## How to fix

    Keep a job on one kind: start a Ray cluster of these nodes alone, or give the nodes a custom resource
    (`ray start --resources`) and request it.
    """
    kinds = [kind for kind in fleet.kinds if kind.gpus not in {"", UNSEEN}]
    if len(kinds) < 2:
        return
    lone = [kind for kind in kinds if kind.count == 1]
    is_exception = bool(lone) and kinds[0].count > 2
    yield Finding(
        f"the nodes have different GPUs: {listed(map(_kind_text, kinds), _NAMED)}",
        Evidence(listed(map(_kind_text, kinds), _NAMED), "one kind for each job", "NVML on each node"),
        subject=Subject("device", "GPU"),
        remedy="keep a job on nodes of one kind",
        severity="warning" if is_exception else None,
        node=",".join(kind.nodes for kind in kinds if kind.nodes) or None,
    )


def _kind_text(kind: NodeKind) -> str:
    where = f" ({kind.nodes})" if kind.nodes else ""
    return f"{counted(kind.count, 'node')} with {kind.gpus}{where}"
