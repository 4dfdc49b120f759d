"""Clusters for the examples of the rules that compare nodes."""

from __future__ import annotations

from collections.abc import Mapping

from verl_doctor.toolkit.collectors.ray.fleet import Fleet, NodeKind, Said, Subject

Answers = Mapping[str, int | tuple[int, str]]
"""How many give each answer, and if they are not most, who."""


def fleet_of(nodes: int, *disputed: tuple[str, str, Answers], among: str = "") -> Fleet:
    """A cluster whose nodes differ in these subjects: kind, name and answers."""
    kinds = (NodeKind("NVIDIA H200", nodes, ""),)
    return Fleet(
        nodes,
        kinds,
        tuple(Subject(kind, name, _counted_answers(answers), among) for kind, name, answers in disputed),
    )


def _counted_answers(answers: Answers) -> tuple[Said, ...]:
    counted = [Said(value, *(who if isinstance(who, tuple) else (who, ""))) for value, who in answers.items()]
    return tuple(sorted(counted, key=lambda answer: -answer.count))


def fleet_of_kinds(*kinds: tuple[str, int, str]) -> Fleet:
    """A cluster whose nodes agree, of these kinds: GPUs, how many nodes, and if they are not most, which."""
    return Fleet(sum(count for _, count, _ in kinds), tuple(NodeKind(*kind) for kind in kinds))
