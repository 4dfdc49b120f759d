"""The one result model. Text, JSON, Markdown and JUnit are views of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from verl_doctor.toolkit.rule import EVERY_JOB, Finding, Unjudged

SCHEMA_VERSION = 1

Status = Literal["pass", "warn", "fail", "skipped", "not_applicable", "error"]
Verdict = Literal["ok", "warnings", "failures", "could_not_check"]
Outcome = Literal["planned", "repaired", "still failing", "made worse, undone", "refused", "not attempted"]
PathState = Literal["starts", "stops", "unknown"]

STATUSES: tuple[Status, ...] = ("fail", "error", "warn", "skipped", "not_applicable", "pass")
_VERDICT_CODES: Mapping[Verdict, int] = {"ok": 0, "warnings": 0, "failures": 1, "could_not_check": 3}


@dataclass(frozen=True)
class CheckResult:
    """What one rule said.

    `reason` explains a status other than pass, warn and fail, or adds to one; `trace` is for `-v`. `deliberate` means
    that the rule was left out on purpose: ignored by the user's configuration, or dearer than this command may be.
    `unjudged` is what it looked at and could not tell. Two results are equal when they say the same, however long each took.
    """

    code: str
    title: str
    status: Status
    reason: str = ""
    seconds: float = field(default=0.0, compare=False)
    findings: tuple[Finding, ...] = ()
    paths: tuple[str, ...] = ()
    trace: str = ""
    deliberate: bool = False
    unjudged: tuple[Unjudged, ...] = ()


@dataclass(frozen=True)
class PathVerdict:
    """Whether one path of a job, for instance "async rollout", would start.

    "starts" means that every rule that judges the path ran and found nothing that stops it. `because` names the rules
    that say otherwise or could not be judged, `not_asked` those that were not selected, `may_stop` those that found what
    stops it under some setting.
    """

    path: str
    state: PathState
    because: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    may_stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Repair:
    """What became of one fix: planned, and after `--apply` judged anew in fresh state.

    `transaction` is the name under which `verl-doctor undo` takes it back: the journal's folder and a number.
    """

    fix: str
    code: str
    title: str
    safety: str
    outcome: Outcome
    reason: str = ""
    changes: tuple[Mapping[str, Any], ...] = ()
    diff: str = ""
    restart: str = ""
    transaction: str | None = None


@dataclass(frozen=True)
class EnvironmentFiles:
    """The files of `--output-env DIR`: where they lie, what they hold, and as a diff what a plan would change.

    `override` is how verl's command line is given one of the variables for the workers, "" when this verl hands none on.
    """

    shell: str
    runtime_env: str
    variables: tuple[Mapping[str, Any], ...] = ()
    diff: str = ""
    override: str = ""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of which one thing is true: what, how many, and which, as ranges (`fleet_names`), "" for most of them."""

    what: str
    count: int
    nodes: str


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster that were asked. `agree` of them do in all that is compared.

    `kinds` groups those that answered by their GPUs, `missing` the others by why they did not.
    """

    answered: int
    agree: int
    kinds: tuple[NodeGroup, ...] = ()
    missing: tuple[NodeGroup, ...] = ()

    @property
    def lost(self) -> int:
        """How many did not answer."""
        return sum(group.count for group in self.missing)


@dataclass(frozen=True)
class Report:
    """Everything that was found out in one run.

    `not_asked` names for each path the rules that would judge it and were not selected. `repairs` is None for a check;
    `applied` says whether they were carried out; `environment` are the files that were asked for. `nodes` is None when one
    machine was judged.
    """

    target: Mapping[str, Any]
    results: tuple[CheckResult, ...]
    seconds: float = 0.0
    fix_safety: Mapping[str, str] = field(default_factory=dict)
    not_asked: Mapping[str, Iterable[str]] = field(default_factory=dict)
    repairs: tuple[Repair, ...] | None = None
    applied: bool = False
    environment: EnvironmentFiles | None = None
    nodes: Nodes | None = None

    @property
    def verdict(self) -> Verdict:
        """The whole run in one word. A failure outweighs a rule that broke or a node that did not answer, and these a warning.

        It is not "ok" when nothing was judged: because what the rules need could not be seen, or because all of them
        were left out.
        """
        found = {result.status for result in self.results if not result.deliberate}
        if "fail" in found:
            return "failures"
        if self.nodes is not None and (self.nodes.lost or not self.nodes.answered):
            return "could_not_check"
        if "error" in found or not found or ("skipped" in found and not found & {"pass", "warn"}):
            return "could_not_check"
        return "warnings" if "warn" in found else "ok"

    @property
    def summary(self) -> dict[str, int]:
        """How many rules ended in each status."""
        counted = Counter(result.status for result in self.results)
        return {status: counted[status] for status in STATUSES}

    @property
    def paths(self) -> tuple[PathVerdict, ...]:
        """The verdict for each path of a job that some rule judged."""
        names = dict.fromkeys(path for result in self.results for path in result.paths)
        return tuple(_path_verdict(path, self.results, self.not_asked.get(path, ())) for path in names)

    def exit_code(self, *, strict: bool = False) -> int:
        """0 nothing failed, 1 failures (with `strict`: warnings too), 3 a rule could not check."""
        if strict and self.verdict == "warnings":
            return 1
        return _VERDICT_CODES[self.verdict]

    def findings(self) -> Iterable[tuple[CheckResult, Finding]]:
        """Every finding with the result that it belongs to."""
        return ((result, finding) for result in self.results for finding in result.findings)


def status_of(findings: Iterable[Finding]) -> Status:
    """The status of a rule that ran: its worst finding decides, and hints alone are a pass."""
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "fail"
    return "warn" if "warning" in severities else "pass"


def _path_verdict(path: str, results: Iterable[CheckResult], not_asked: Iterable[str]) -> PathVerdict:
    known = list(results)
    stopping = tuple(result.code for result in known if _stops(result, path))
    may_stop = tuple(
        result.code for result in known if any(path in finding.may_stop for finding in result.findings)
    )
    if stopping:
        return PathVerdict(path, "stops", stopping, may_stop=may_stop)
    judges = [result for result in known if path in result.paths]
    silent = tuple(
        result.code for result in judges if result.status in {"skipped", "error", "not_applicable"}
    )
    others = tuple(not_asked)
    return PathVerdict(path, "unknown" if silent or others else "starts", silent, others, may_stop)


def _stops(result: CheckResult, path: str) -> bool:
    return any(path in finding.stops or EVERY_JOB in finding.stops for finding in result.findings)


def document(report: Report) -> dict[str, Any]:
    """The JSON document, in a stable order."""
    said: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.verdict,
        "target": dict(report.target),
        "paths": [_path(path) for path in report.paths],
        "results": [_result(result, report.fix_safety) for result in report.results],
        "summary": report.summary,
        "seconds": round(report.seconds, 3),
    }
    if report.nodes is not None:
        said["nodes"] = {**asdict(report.nodes), "lost": report.nodes.lost}
    if report.repairs is not None:
        said["repairs"] = [
            {**asdict(repair), "changes": [dict(c) for c in repair.changes]} for repair in report.repairs
        ]
    if report.environment is not None:
        said["environment"] = {
            **asdict(report.environment),
            "variables": [dict(one) for one in report.environment.variables],
        }
    return said


def _path(path: PathVerdict) -> dict[str, Any]:
    lists = {name: list(getattr(path, name)) for name in ("because", "not_asked", "may_stop")}
    return {**asdict(path), **lists}


def _result(result: CheckResult, fix_safety: Mapping[str, str]) -> dict[str, Any]:
    return {
        "code": result.code,
        "title": result.title,
        "status": result.status,
        "reason": result.reason,
        "seconds": round(result.seconds, 4),
        "findings": [_finding(finding, fix_safety) for finding in result.findings],
        "unjudged": [asdict(entry) for entry in result.unjudged],
    }


def _finding(finding: Finding, fix_safety: Mapping[str, str]) -> dict[str, Any]:
    known = finding.fix if finding.fix in fix_safety else None
    return {
        "message": finding.message,
        "severity": finding.severity,
        "evidence": asdict(finding.evidence),
        "location": asdict(finding.location) if finding.location else None,
        "also": [asdict(location) for location in finding.also],
        "remedy": finding.remedy,
        "stops": list(finding.stops),
        "may_stop": list(finding.may_stop),
        "phase": finding.phase,
        "node": finding.node,
        "fix": {"id": known, "safety": fix_safety[known]} if known else None,
    }


def with_repairs(
    report: Report,
    repairs: Iterable[Repair],
    *,
    applied: bool,
    environment: EnvironmentFiles | None = None,
) -> Report:
    """The same report, with what became of the fixes."""
    return replace(report, repairs=tuple(repairs), applied=applied, environment=environment)
