"""Shared by the rules about uses of a library: from breaking uses to findings, one for each root cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import PurePath

from verl_doctor.checks.api import _unread as unread
from verl_doctor.checks.api._vllm_renames import RENAMES
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity, Subject, Unjudged

_ON_NPU = re.compile(r"(?<!not )\bis_(?:torch_)?npu_available\b")


def breaks(uses: ApiUses, *kinds: str) -> Iterator[ApiUse]:
    """Yield the breaking uses of these kinds that no rule about a rename covers."""
    return (use for use in uses.uses if use.breaks and use.kind in kinds and not renamed(use))


def renamed(use: ApiUse) -> bool:
    """Whether a known rename explains the miss: the code uses the old name, and the library has the new one."""
    return any(use.last == rename.old and use.now == rename.new for rename in RENAMES)


def by_cause(uses: Iterable[ApiUse], cause: Callable[[ApiUse], str]) -> Iterator[list[ApiUse]]:
    """Group the uses by cause; within a group, those that stop a path come first."""
    ordered = sorted(uses, key=lambda use: (cause(use), not _stops(use), use.path, use.line))
    return (list(group) for _, group in groupby(ordered, key=cause))


def finding(
    group: list[ApiUse],
    message: str,
    *,
    found: str,
    wanted: str,
    remedy: str,
    fix: str | None = None,
    subject: Subject | None = None,
) -> Finding:
    """One finding for all places with the same cause. It stops the paths that reach any of them in every run.

    Without a `subject` it is about what the first use refers to.
    """
    stops = tuple(dict.fromkeys(path for use in group if not use.when for path in use.paths))
    places = list(dict.fromkeys(Location(use.path, use.line) for use in group))
    return Finding(
        message=f"{message}{_behind(group)}" if stops else f"{message} ({_circumstance(group[0])})",
        evidence=Evidence(found, wanted, next((use.read_from for use in group if use.read_from), "")),
        location=places[0],
        remedy=remedy,
        severity=None if stops else _optional_severity(group),
        fix=fix,
        stops=stops,
        may_stop=_may_stop(group, stops),
        phase="import"
        if any(use.phase == "import" for use in group if _stops(use) or not stops)
        else "start",
        also=tuple(places[1:]),
        subject=subject or _used(group[0]),
    )


def judged(
    uses: Iterable[ApiUse],
    cause: Callable[[ApiUse], str],
    say: Callable[[list[ApiUse]], Finding],
    fold: Callable[[list[ApiUse]], str],
    remedy: str,
) -> Iterator[Finding]:
    """Yield one finding for each cause that stops a path, and one for all other breaks in each module that a path may reach.

    Breaks that no path reaches share one finding. `say` makes the finding for one cause, `fold` the message for
    several, and `remedy` is that of several. Several causes have a fix only if it is the same for each.
    """
    rest: dict[str, list[list[ApiUse]]] = {}
    for group in by_cause(uses, cause):
        if any(map(_stops, group)):
            yield say(group)
            continue
        for path, part in groupby(sorted(group, key=_reached_part), key=_reached_part):
            rest.setdefault(path, []).append(list(part))
    for groups in rest.values():
        groups.sort(key=lambda group: (group[0].path, group[0].line))
        findings = [say(group) for group in groups]
        fixes = {finding.fix for finding in findings}
        yield (
            findings[0]
            if len(findings) == 1
            else replace(_folded(groups, fold, remedy), fix=fixes.pop() if len(fixes) == 1 else None)
        )


def _reached_part(use: ApiUse) -> str:
    """The module of a use that some path may reach; "" for all others."""
    return use.path if use.paths else ""


def _folded(groups: list[list[ApiUse]], fold: Callable[[list[ApiUse]], str], remedy: str) -> Finding:
    """One finding for several causes in parts of verl that no job runs by default."""
    firsts = [group[0] for group in groups]
    every = sorted({(use.path, use.line) for group in groups for use in group})
    places = [Location(path, line) for path, line in every]
    circumstances = {_circumstance(use) for group in groups for use in group}
    circumstance = circumstances.pop() if len(circumstances) == 1 else "each only with some settings"
    return Finding(
        message=f"{fold(firsts)} ({circumstance})",
        evidence=Evidence(
            "; ".join(dict.fromkeys(use.reason or use.name for use in firsts)),
            "; ".join(dict.fromkeys(use.now for use in firsts if use.now)),
            next((use.read_from for use in firsts if use.read_from), ""),
        ),
        location=places[0],
        remedy=f"{remedy}, or avoid that part of verl",
        severity=_optional_severity(groups[0]),
        may_stop=_may_stop([use for group in groups for use in group]),
        also=tuple(places[1:]),
        subject=_all_used(firsts),
    )


# Kinds of uses whose names lack the package: options of vLLM's command line, methods of its workers.
_OF_VLLM = frozenset({"option", "sent"})


def _used(use: ApiUse) -> Subject:
    """The name in the library, with the argument if the use is about one; "return" for an override's return value."""
    name, _, argument = use.name.rstrip(")").partition("(")
    if use.kind in _OF_VLLM:
        name = f"vllm.{name}"
    return Subject("symbol", name.replace(":", "."), "return" if use.kind == "result" else argument)


def _all_used(uses: Iterable[ApiUse]) -> Subject:
    """Several names as one subject, regardless of their order in the files."""
    subjects = [_used(use) for use in uses]
    names, details = (
        {subject.name for subject in subjects},
        {subject.detail for subject in subjects if subject.detail},
    )
    return Subject("symbol", ",".join(sorted(names)), ",".join(sorted(details)))


def _behind(group: list[ApiUse]) -> str:
    """Where a job ends before it reaches any of these uses."""
    places = [use.behind for use in group if _stops(use)]
    return f" (only after {PurePath(places[0]).name} can be imported)" if places and all(places) else ""


def unresolved(uses: ApiUses, *kinds: str) -> tuple[Unjudged, ...]:
    """The uses of these kinds that could not be resolved, and the files that were not read for uses."""
    uncertain = (
        Unjudged(use.name, use.reason, Location(use.path, use.line))
        for use in uses.uses
        if use.resolution == "unknown" and use.kind in kinds and not use.guard
    )
    return (*uncertain, *unread.unjudged(uses.unread))


def _may_stop(uses: Iterable[ApiUse], stops: Iterable[str] = ()) -> tuple[str, ...]:
    """The paths that reach one of these uses under some setting."""
    return tuple(dict.fromkeys(path for use in uses for path in use.paths if path not in stops))


def _optional_severity(group: list[ApiUse]) -> Severity:
    """A warning if a job may reach one of these uses under some setting, a hint otherwise.

    Uses for an Ascend NPU, in parts of verl that no job loads by itself, or under settings that the job has otherwise are not reached.
    """
    reached = (use.paths and not use.off and not _ON_NPU.search(use.when) for use in group)
    return "warning" if any(reached) else "info"


def _stops(use: ApiUse) -> bool:
    return bool(use.paths) and not use.when


def _circumstance(use: ApiUse) -> str:
    if use.elsewhere:
        return f"in the {' and the '.join(use.elsewhere)}, which this job does not use"
    if not use.paths:
        return "in a part of verl that a job loads only on demand"
    return f"only when {use.when}"
