"""The report of `check` and `fix` as a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.change import Safety
from verl_doctor.toolkit.collectors.installed.trees import Place
from verl_doctor.toolkit.json_document import Code, Count, Keyword, plain
from verl_doctor.toolkit.render.result_words import by_reason
from verl_doctor.toolkit.result import (
    CheckResult,
    JobReport,
    Outcome,
    PathVerdict,
    ReasonKind,
    Report,
    Status,
)
from verl_doctor.toolkit.rule import Finding, Phase, Severity, SubjectKind
from verl_doctor.toolkit.verdict import PathState, Verdict

_When = Annotated[
    Phase | None,
    (
        "when a fault strikes, in the order in which a job gets there; start: at engine start or later; "
        "null: unknown"
    ),
]


class TreeDocument(TypedDict):
    """A source tree of a package."""

    folder: str
    version: str
    found_in: Annotated[str, "where it was found, as text"]
    place: Annotated[Place, "where it was found, for programs; empty: unknown"]


class TargetDocument(TypedDict):
    """What was examined."""

    python: str
    chosen_by: str
    passed_over: Annotated[str, "the active environment that could not be used, and why; empty for none"]
    arguments: Annotated[list[str], "the options with which another command examines the same target"]
    python_version: str
    verl: TreeDocument | None
    vllm: TreeDocument | None
    libraries: Annotated[dict[str, TreeDocument], "the other installed libraries whose API verl uses"]


class PathDocument(TypedDict):
    """A path of a job, for instance sync or async rollout. A path named job stands for the whole job."""

    path: str
    state: PathState
    phase: _When
    codes: Annotated[
        list[Code],
        (
            "will_fail: the rules that found errors, in the order in which they strike; not_checked: the "
            "rules that could not check"
        ),
    ]
    not_judged: Annotated[list[Code], "rules about this path that were left out"]
    may_stop: Annotated[list[Code], "rules that found what stops this path under some settings"]


class EvidenceDocument(TypedDict):
    """What was found."""

    found: str
    wanted: str
    read_from: str


class LocationDocument(TypedDict):
    """A file, and a line in it."""

    path: str
    line: int | None


class SubjectDocument(TypedDict):
    """What a finding is about, for programs."""

    kind: SubjectKind
    name: str
    detail: Annotated[str, "what distinguishes subjects with the same name"]


class FixDocument(TypedDict):
    """The fix that repairs a finding."""

    id: str
    safety: Safety


class FindingDocument(TypedDict):
    """A fault."""

    message: str
    severity: Severity
    evidence: EvidenceDocument
    location: LocationDocument | None
    also: list[LocationDocument]
    remedy: str
    stops: list[str]
    may_stop: Annotated[list[str], "paths of a job that this stops under some settings"]
    subject: SubjectDocument | None
    phase: _When
    node: Annotated[
        str | None, "the nodes with this fault, as ranges: node[001-100,107]; null for this machine"
    ]
    fix: FixDocument | None


class UnjudgedDocument(TypedDict):
    """What a rule examined but could not judge."""

    what: str
    why: str
    location: LocationDocument
    paths: Annotated[list[str], "paths of the job that cannot be checked because of it"]


class ResultDocument(TypedDict):
    """The result of one rule."""

    code: Code
    title: str
    status: Status
    reason: Annotated[str, "a sentence for people"]
    reason_kind: Annotated[ReasonKind | None, "the same for programs; null if there is nothing to explain"]
    follows_from: Annotated[Code | None, "the rule that failed, so that this one could not be checked"]
    seconds: Annotated[float, Keyword("minimum", 0)]
    findings: list[FindingDocument]
    silenced_errors: Annotated[Count, "how many errors the configuration hides; they are not in findings"]
    unjudged: list[UnjudgedDocument]


class NotJudgedDocument(TypedDict):
    """Rules that could not judge a launch file, for one reason."""

    codes: Annotated[list[Code], "empty: all that need verl"]
    reason: Annotated[str, "a sentence for people"]
    reason_kind: Annotated[ReasonKind | None, "the same for programs; null: no verl was found"]
    follows_from: Annotated[Code | None, "the rule that failed, so that these could not be checked"]


class JobDocument(TypedDict):
    """One of several launch files, judged as a separate job."""

    file: str
    verdict: Verdict
    not_judged: list[NotJudgedDocument]
    silenced_errors: Annotated[Count, "how many errors the configuration hides in this file"]


class UnchangedDocument(TypedDict):
    """The rules whose result an earlier run found, and nothing that it depends on has changed since."""

    rules: Annotated[int, Keyword("minimum", 1)]
    seconds: Annotated[Count, "the age of that run"]


class FileChangeDocument(TypedDict):
    """A file is written or removed."""

    kind: Literal["replace_file", "new_file", "removed_file"]
    path: str


class LinkChangeDocument(TypedDict):
    """A symbolic link is created."""

    kind: Literal["new_link"]
    path: str
    target: str


class VariableChangeDocument(TypedDict):
    """An environment variable is set."""

    kind: Literal["set_variable"]
    name: str
    value: Annotated[str | None, "null: the variable is unset"]
    why: str
    until: str
    prepend: Annotated[bool, "the value is put in front of a list of paths"]
    node_only: Annotated[bool, "other nodes may need another value"]


class BytecodeChangeDocument(TypedDict):
    """Bytecode is compiled."""

    kind: Literal["compile_bytecode"]
    python: str
    roots: list[str]


class CommandChangeDocument(TypedDict):
    """A command is run."""

    kind: Literal["run_command"]
    argv: list[str]
    why: str


class InstallChangeDocument(TypedDict):
    """Packages are installed."""

    kind: Literal["install_packages"]
    environment: str
    copy: Annotated[str, "the environment itself if it is changed in place"]
    argv: list[str]
    lock_file: str
    lock: Annotated[list[str], "a pin for each package"]
    cleared: Annotated[list[str], "metadata folders of packages that are removed first"]
    why: Annotated[list[str], "which packages are upgraded, downgraded, added and removed"]


ChangeDocument = (
    FileChangeDocument
    | LinkChangeDocument
    | VariableChangeDocument
    | BytecodeChangeDocument
    | CommandChangeDocument
    | InstallChangeDocument
)


class RepairDocument(TypedDict):
    """The result of one fix."""

    fix: str
    code: Code
    title: str
    safety: Safety
    outcome: Outcome
    reason: str
    changes: list[ChangeDocument]
    diff: str
    restart: str
    transaction: str | None
    notes: list[str]


class ForecastDocument(TypedDict):
    """The verdict after the plan: with its safe repairs, and with all of them if that differs."""

    unsafe: bool
    verdict: Verdict
    left: Annotated[list[Code], "the rules that would still find errors"]


class VariableDocument(TypedDict):
    """A variable in the files of fix --output-env."""

    name: str
    value: str | None
    prepend: bool
    node_only: bool
    ray: Annotated[str | None, "the value for Ray; null: only the shell file contains it"]
    reasons: list[str]


class EnvironmentDocument(TypedDict):
    """The files of fix --output-env: what they contain, or would contain."""

    shell: str
    runtime_env: str
    variables: list[VariableDocument]
    diff: str
    override: Annotated[str, "how verl's command line passes a variable to Ray's workers; empty: it cannot"]


class NodeGroupDocument(TypedDict):
    """Nodes with something in common."""

    what: str
    count: Annotated[int, Keyword("minimum", 1)]
    nodes: Annotated[str, "as ranges: node[001-100,107]; empty for more than half of all"]


class NodesDocument(TypedDict):
    """The nodes of the cluster; those without faults are only counted."""

    answered: Annotated[Count, "how many responded"]
    agree: Annotated[Count, "how many of them match most others in everything compared"]
    kinds: Annotated[
        list[NodeGroupDocument], "those that responded, by the kind of their GPUs; empty for none"
    ]
    missing: Annotated[list[NodeGroupDocument], "those that did not, by the reason"]
    lost: Annotated[Count, "how many did not respond"]


class _OptionalParts(TypedDict, total=False):
    unchanged: UnchangedDocument
    jobs: Annotated[list[JobDocument], "with check --each: the launch files, in the given order"]
    nodes: NodesDocument
    repairs: list[RepairDocument]
    forecasts: list[ForecastDocument]
    environment: EnvironmentDocument


class ReportDocument(_OptionalParts):
    """What stops or slows down a job, and what the fixes did about it."""

    schema_version: Literal[1]
    verdict: Verdict
    target: TargetDocument
    paths: Annotated[list[PathDocument], Keyword("minItems", 1)]
    results: list[ResultDocument]
    summary: Annotated[dict[str, Count], "the number of rules with each status"]
    seconds: Annotated[float, Keyword("minimum", 0)]


def document(report: Report) -> ReportDocument:
    """Return the JSON document, in a stable order."""
    fields: ReportDocument = {
        "schema_version": 1,
        "verdict": report.verdict,
        "target": plain(report.target),
        "paths": [path_document(path) for path in report.paths],
        "results": [_result(result, report.fix_safety) for result in report.results],
        "summary": report.summary,
        "seconds": round(report.seconds, 3),
    }
    if report.unchanged is not None:
        fields["unchanged"] = plain(report.unchanged)
    if report.jobs:
        fields["jobs"] = [_job(job) for job in report.jobs]
    if report.nodes is not None:
        fields["nodes"] = plain(report.nodes) | {"lost": report.nodes.lost}
    if report.repairs is not None:
        fields["repairs"] = plain(report.repairs)
    if report.forecasts:
        fields["forecasts"] = plain(report.forecasts)
    if report.environment is not None:
        fields["environment"] = plain(report.environment)
    return fields


def path_document(path: PathVerdict) -> PathDocument:
    """Return one path in JSON types."""
    return {
        "path": path.path,
        "state": path.state,
        "phase": path.phase,
        "codes": list(path.codes),
        "not_judged": list(path.not_judged),
        "may_stop": list(path.may_stop),
    }


def _result(result: CheckResult, fix_safety: Mapping[str, Safety]) -> ResultDocument:
    return {
        "code": result.code,
        "title": result.title,
        "status": result.status,
        "reason": result.reason,
        "reason_kind": result.reason_kind,
        "follows_from": result.follows_from,
        "seconds": round(result.seconds, 4),
        "findings": [_finding(finding, fix_safety) for finding in result.findings],
        "silenced_errors": result.silenced_errors,
        "unjudged": [plain(entry) for entry in result.unjudged],
    }


def _job(job: JobReport) -> JobDocument:
    """Return one launch file with what was not judged in it, though the user left nothing of that out."""
    report = job.report
    missing: list[NotJudgedDocument] = []
    if report.unexamined:
        missing.append({"codes": [], "reason": report.unexamined, "reason_kind": None, "follows_from": None})
    for reason, results in by_reason(report, "error", "skipped").items():
        if not results[0].deliberate:
            missing.append(
                {
                    "codes": [result.code for result in results],
                    "reason": reason,
                    "reason_kind": results[0].reason_kind,
                    "follows_from": results[0].follows_from,
                }
            )
    return {
        "file": job.file,
        "verdict": report.verdict,
        "not_judged": missing,
        "silenced_errors": sum(result.silenced_errors for result in report.results),
    }


def _finding(finding: Finding, fix_safety: Mapping[str, Safety]) -> FindingDocument:
    fix = finding.fix if finding.fix in fix_safety else None
    return {
        "message": finding.message,
        "severity": finding.severity or "error",  # a judged finding always has one
        "evidence": plain(finding.evidence),
        "location": plain(finding.location),
        "also": plain(finding.also),
        "remedy": finding.remedy,
        "stops": list(finding.stops),
        "may_stop": list(finding.may_stop),
        "subject": plain(finding.subject),
        "phase": finding.phase,
        "node": finding.node,
        "fix": {"id": fix, "safety": fix_safety[fix]} if fix else None,
    }
