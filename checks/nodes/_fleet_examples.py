"""Clusters for the examples of the rules that compare nodes."""

from __future__ import annotations

from collections.abc import Mapping

from verl_doctor.toolkit.collectors.ray.fleet import Fleet, NodeKind, ReportedValue, Subject

Values = Mapping[str, int | tuple[int, str]]
"""For each value the number of nodes that have it, and, if they are not the majority, which."""


def fleet_of(nodes: int, *disputed: tuple[str, str, Values], among: str = "") -> Fleet:
    """A cluster whose nodes differ in these subjects: kind, name and values."""
    kinds = (NodeKind(gpus="NVIDIA H200", count=nodes, nodes=""),)
    return Fleet(
        nodes=nodes,
        kinds=kinds,
        differ=tuple(
            Subject(kind=kind, name=name, answers=_counted_values(values), among=among)
            for kind, name, values in disputed
        ),
    )


def _counted_values(values: Values) -> tuple[ReportedValue, ...]:
    counted = [
        ReportedValue(value, *(who if isinstance(who, tuple) else (who, ""))) for value, who in values.items()
    ]
    return tuple(sorted(counted, key=lambda answer: -answer.count))


def fleet_of_kinds(*kinds: tuple[str, int, str]) -> Fleet:
    """A cluster whose nodes agree, of these kinds.

    Each kind has the GPUs, the number of nodes, and, if they are not the majority, which nodes.
    """
    return Fleet(nodes=sum(count for _, count, _ in kinds), kinds=tuple(NodeKind(*kind) for kind in kinds))
