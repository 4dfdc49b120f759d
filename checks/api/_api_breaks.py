"""Shared by the rules about uses of a library: from uses that break to findings, one for each root cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import PurePath

from verl_doctor.checks.api import _unread as unread
from verl_doctor.checks.api._vllm_renames import LOG_REQUESTS
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity, Subject, Unjudged

_ON_NPU = re.compile(r"(?<!not )\bis_(?:torch_)?npu_available\b")


def breaks(uses: ApiUses, *kinds: str) -> Iterator[ApiUse]:
    """The uses of these kinds that break, without those that VLLM101 reports."""
    return (use for use in uses.uses if use.breaks and use.kind in kinds and not renamed(use))


def renamed(use: ApiUse) -> bool:
    """Whether the rename that a rule of its own reports (VLLM101) explains the break."""
    return use.last == LOG_REQUESTS.old and use.now == LOG_REQUESTS.new


def by_cause(uses: Iterable[ApiUse], cause: Callable[[ApiUse], str]) -> Iterator[list[ApiUse]]:
    """Group the uses that have one cause, those that stop a path first."""
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
    """One finding for all places with the same cause.

    It stops those paths that reach one of them in every run.

    Without a `subject` it is about what the first of them uses.
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
    finding_of: Callable[[list[ApiUse]], Finding],
    fold: Callable[[list[ApiUse]], str],
    remedy: str,
) -> Iterator[Finding]:
    """One finding per cause that stops a path, one for all other breaks of a module that a path may reach.

    Those that no path reaches are one finding together. `finding_of` makes the finding for one cause, `fold`
    the message for several, and `remedy` is theirs. A fix is named for several when it is the fix of each.
    """
    rest: dict[str, list[list[ApiUse]]] = {}
    for group in by_cause(uses, cause):
        if any(map(_stops, group)):
            yield finding_of(group)
            continue
        for path, part in groupby(sorted(group, key=_reached_part), key=_reached_part):
            rest.setdefault(path, []).append(list(part))
    for groups in rest.values():
        groups.sort(key=lambda group: (group[0].path, group[0].line))
        findings = [finding_of(group) for group in groups]
        fixes = {finding.fix for finding in findings}
        yield (
            findings[0]
            if len(findings) == 1
            else replace(_folded(groups, fold, remedy), fix=fixes.pop() if len(fixes) == 1 else None)
        )


def _reached_part(use: ApiUse) -> str:
    """The module of a use that some path may reach, "" for all others."""
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


# Kinds of uses whose names are spelled without the package: options of its command line, methods of its
# workers.
_OF_VLLM = frozenset({"option", "sent"})


def _used(use: ApiUse) -> Subject:
    """The name of the library, with its argument if the use has one; "return" is an override's result."""
    name, _, argument = use.name.rstrip(")").partition("(")
    if use.kind in _OF_VLLM:
        name = f"vllm.{name}"
    return Subject("symbol", name.replace(":", "."), "return" if use.kind == "result" else argument)


def _all_used(uses: Iterable[ApiUse]) -> Subject:
    """Several names as one subject, whatever their order in the files."""
    subjects = [_used(use) for use in uses]
    names, details = (
        {subject.name for subject in subjects},
        {subject.detail for subject in subjects if subject.detail},
    )
    return Subject("symbol", ",".join(sorted(names)), ",".join(sorted(details)))


def _behind(group: list[ApiUse]) -> str:
    """Where a job ends before it gets to any of these."""
    places = [use.behind for use in group if _stops(use)]
    return f" (only after {PurePath(places[0]).name} can be imported)" if places and all(places) else ""


def unresolved(uses: ApiUses, *kinds: str) -> tuple[Unjudged, ...]:
    """The uses of these kinds whose targets may or may not exist, and the files not read for uses."""
    uncertain = (
        Unjudged(use.name, use.reason, Location(use.path, use.line))
        for use in uses.uses
        if use.resolution == "unknown" and use.kind in kinds and not use.guard
    )
    return (*uncertain, *unread.unjudged(uses.unread))


def _may_stop(uses: Iterable[ApiUse], stops: Iterable[str] = ()) -> tuple[str, ...]:
    """The paths that reach one of these under some setting."""
    return tuple(dict.fromkeys(path for use in uses for path in use.paths if path not in stops))


def _optional_severity(group: list[ApiUse]) -> Severity:
    """The severity of breaks that a job reaches only in some circumstances.

    A job may get there under some setting, or only on an Ascend NPU, or only in a part of verl that no job
    loads by itself.

    A setting that the job has otherwise does not lead there.
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
