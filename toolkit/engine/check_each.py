"""Files that start jobs, each judged as a separate job.

A finding counts when it is about the file: it lies in the file, or it is an error that this machine does not
have without a job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, VerlTrees, VllmTree
from verl_doctor.toolkit.engine.examination import Look, Source, Watch
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.engine.unused_ignores import announce_unused
from verl_doctor.toolkit.result import CheckResult, JobReport, Report, Status, status_of
from verl_doctor.toolkit.rule import Finding, Location
from verl_doctor.toolkit.target import Options, discover

# What all jobs have in common, and is observed once.
_SHARED: tuple[type, ...] = (Interpreter, Packages, VerlTrees, VllmTree, LibraryTrees)
# Of several results of a rule the first of these counts.
_ORDER: tuple[Status, ...] = ("fail", "error", "warn", "skipped", "pass", "not_applicable")


@dataclass(frozen=True)
class EachLaunchFile(Source):
    """Launch files, each a separate job, with these `options` in common."""

    options: Options
    files: tuple[str, ...]

    def judge(self, session: Session, _look: Look, watch: Watch) -> Report:
        """Judge one file after the other.

        Raises UsageError when one cannot be read as a launch file.
        """
        return judged(session, self.options, self.files, watch)


def judged(run: Session, options: Options, files: Sequence[str], watch: Watch) -> Report:
    """Return one report on all files.

    Raises UsageError when one cannot be read as a launch file.
    """
    announce_unused(run.config, [run.machine.cwd / file for file in files])
    known: dict[type, Any] = {}
    usual: frozenset[_Key] = frozenset()
    jobs: list[JobReport] = []
    for file in (None, *files):
        watch(file or "this machine")
        job = discover(replace(options, launch=(file,) if file else ()), run.machine)
        target = replace(run.target, files=job.files, words=job.words)
        selection = replace(run.selection, ignores=run.config.ignores_for(job.files))
        session = replace(run, target=target, selection=selection, begun=run.begun if not known else [])
        collection = session.look(known)
        known = {fact: collection.get(fact) for fact in _SHARED}
        report = session.check(collection)
        if file is None:
            usual = frozenset(_key(result, finding) for result, finding in report.findings())
            continue
        about = (_about(target.files[0], result, usual) for result in report.results)
        jobs.append(JobReport(str(target.files[0]), replace(report, results=tuple(about))))
    return replace(_merged([job.report for job in jobs]), jobs=tuple(jobs))


_Key = tuple[str, object, str]


def _key(result: CheckResult, finding: Finding) -> _Key:
    """Return what identifies a finding across jobs."""
    return result.code, finding.subject, finding.message


def _about(file: Path, result: CheckResult, usual: frozenset[_Key]) -> CheckResult:
    """Return a rule's result without what it finds on this machine for any job."""
    findings = tuple(
        _at(str(file), finding)
        for finding in result.findings
        if _stands_in(str(file), finding)
        or (finding.severity == "error" and _key(result, finding) not in usual)
    )
    judged = result.status in {"pass", "warn", "fail"}
    return replace(result, findings=findings, status=status_of(findings) if judged else result.status)


def _places(finding: Finding) -> list[Location]:
    return [place for place in (finding.location, *finding.also) if place is not None]


def _stands_in(file: str, finding: Finding) -> bool:
    return any(place.path == file for place in _places(finding))


def _at(file: str, finding: Finding) -> Finding:
    """Return the finding at its first place in the file, or at the file as a whole."""
    places = _places(finding)
    first = next((place for place in places if place.path == file), Location(file))
    return replace(finding, location=first, also=tuple(place for place in places if place != first))


def _merged(reports: Sequence[Report]) -> Report:
    results_by_code: Mapping[str, list[CheckResult]] = defaultdict(list)
    for report in reports:
        for result in report.results:
            results_by_code[result.code].append(result)
    results = (
        replace(
            min(found, key=lambda result: _ORDER.index(result.status)),
            findings=tuple(finding for result in found for finding in result.findings),
            silenced_errors=sum(result.silenced_errors for result in found),
            seconds=sum(result.seconds for result in found),
        )
        for found in results_by_code.values()
    )
    seconds = sum(report.seconds for report in reports)
    return replace(reports[0], results=tuple(results), seconds=seconds, not_selected={})
