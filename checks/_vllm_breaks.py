"""Shared by the VLLM1xx rules: from uses that break to findings, one for each root cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from verl_doctor.checks._vllm_renames import RENAMES
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity


def breaks(uses: VllmUses, *kinds: str) -> Iterator[VllmUse]:
    """The uses of these kinds that break and that no rule about a rename explains."""
    return (use for use in uses.uses if use.breaks and use.kind in kinds and not renamed(use))


def renamed(use: VllmUse) -> bool:
    """Whether a known rename explains the miss: the old name is used and the new one is there."""
    return any(use.last == rename.old and use.now == rename.new for rename in RENAMES)


def by_cause(uses: Iterable[VllmUse], cause: Callable[[VllmUse], str]) -> Iterator[list[VllmUse]]:
    """Group the uses that have one cause, those that stop a path first."""
    ordered = sorted(uses, key=lambda use: (cause(use), not _stops(use), use.path, use.line))
    return (list(group) for _, group in groupby(ordered, key=cause))


def finding(
    group: list[VllmUse], message: str, *, found: str, wanted: str, remedy: str, fix: str | None = None
) -> Finding:
    """One finding for all places with the same cause. It stops those paths that reach one of them in every run."""
    stops = tuple(dict.fromkeys(path for use in group if not use.when for path in use.paths))
    places = list(dict.fromkeys(Location(use.path, use.line) for use in group))
    return Finding(
        message=message if stops else f"{message} ({_circumstance(group[0])})",
        evidence=Evidence(found, wanted, next((use.read_from for use in group if use.read_from), "")),
        location=places[0],
        remedy=remedy,
        severity=None if stops else _optional_severity(group),
        fix=fix,
        stops=stops,
        also=tuple(places[1:]),
    )


def _optional_severity(group: list[VllmUse]) -> Severity:
    """A rollout may get there under some setting, or only a part of verl that no rollout loads by itself."""
    return "warning" if any(use.paths for use in group) else "info"


def _stops(use: VllmUse) -> bool:
    return bool(use.paths) and not use.when


def _circumstance(use: VllmUse) -> str:
    if not use.paths:
        return "in a part of verl that the rollouts load only on demand"
    return f"only when {use.when}"
