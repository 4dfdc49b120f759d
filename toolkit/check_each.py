"""Files that start jobs, each judged as a job of its own: what is found counts when it is about the file, not about this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.checkout import path_in
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_packages import Packages
from verl_doctor.toolkit.fact_trees import LibraryTrees, VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.result import CheckResult, Report, Status, status_of
from verl_doctor.toolkit.rule import Finding, Location
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.target import Options, UsageError, discover
from verl_doctor.toolkit.text import harmless

# What all jobs have in common, and is observed once.
_SHARED: tuple[type, ...] = (Interpreter, Packages, VerlTrees, VllmTree, LibraryTrees)
# Of several answers of a rule the first of these counts.
_ORDER: tuple[Status, ...] = ("fail", "error", "warn", "skipped", "pass", "not_applicable")


def judged(run: Session, options: Options, files: Sequence[str], watch: Callable[[str], None]) -> Report:
    """One report on all files. Raises UsageError when one cannot be read as a launch file, or when there is no verl."""
    known: dict[type, Any] = {}
    reports = []
    for file in files:
        watch(file)
        target = discover(replace(options, launch=(file,)), run.machine)
        one = replace(run, target=target, begun=run.begun if not known else [])
        collection = one.look(known)
        if isinstance(absent := collection.get(VerlTrees), Absent):
            raise UsageError(
                f"{absent.reason}; name a verl to judge against with --verl DIR or --python PATH"
            )
        known = {fact: collection.get(fact) for fact in _SHARED}
        report = one.check(collection)
        reports.append(replace(report, results=tuple(_about(target.files[0], r) for r in report.results)))
    return _merged(reports)


def lines(report: Report, cwd: Path) -> Iterator[str]:
    """A line for each finding, as compilers and linters write it, in the order of files and lines."""
    found = [
        (place.path, place.line or 0, result.code, finding)
        for result, finding in report.findings()
        if (place := finding.location) is not None and finding.severity != "info"
    ]
    for path, line, code, finding in sorted(found, key=lambda row: row[:3]):
        place = Location(path_in(cwd, path) or path, line or None)
        yield harmless(f"{place}: {code} {finding.severity}: {finding.message}")


def _about(file: Path, result: CheckResult) -> CheckResult:
    """A rule's answer without what it found elsewhere. A finding with several places stands at the first in the file."""
    findings = tuple(moved for finding in result.findings if (moved := _in(str(file), finding)))
    said = result.status in {"pass", "warn", "fail"}
    return replace(result, findings=findings, status=status_of(findings) if said else result.status)


def _in(file: str, finding: Finding) -> Finding | None:
    places = [place for place in (finding.location, *finding.also) if place is not None]
    here = [place for place in places if place.path == file]
    if not here:
        return None
    return replace(finding, location=here[0], also=tuple(place for place in places if place != here[0]))


def _merged(reports: Sequence[Report]) -> Report:
    answers: Mapping[str, list[CheckResult]] = defaultdict(list)
    for report in reports:
        for result in report.results:
            answers[result.code].append(result)
    results = (
        replace(
            min(found, key=lambda result: _ORDER.index(result.status)),
            findings=tuple(finding for result in found for finding in result.findings),
            seconds=sum(result.seconds for result in found),
        )
        for found in answers.values()
    )
    seconds = sum(report.seconds for report in reports)
    return replace(reports[0], results=tuple(results), seconds=seconds, not_asked={})
