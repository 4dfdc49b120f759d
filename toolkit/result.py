"""The single result model. Text, JSON, Markdown and JUnit, in `render`, are views of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from verl_doctor.toolkit.change import Safety
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.rule import EVERY_JOB, PHASES, Finding, Phase, Unjudged
from verl_doctor.toolkit.verdict import EXIT_CODES, PathState, Verdict

Status = Literal["pass", "warn", "fail", "skipped", "not_applicable", "error"]
Outcome = Literal["planned", "repaired", "still failing", "made worse, undone", "refused", "not attempted"]

STATUSES: tuple[Status, ...] = ("fail", "error", "warn", "skipped", "not_applicable", "pass")
JOB = "job"
"""The name of the only path, where no rule distinguishes several."""

_LAST = len(PHASES)

ReasonKind = Literal[
    "ignored until a date",
    "ignore expired",
    "cost not paid",
    "follows from another rule",
    "not relevant",
    "fact absent",
    "fact unknown",
    "fact broken",
    "rule broke",
]
"""Why a rule was not judged, or what qualifies its judgement.

ignored until a date: the user's configuration leaves it out; ignore expired: it left it out until a past
date; cost not paid: it, or a fact that it needs, is more expensive than this command allows; not relevant:
the rule declares itself so; fact absent, unknown or broken: the state of a fact that it needs
(`facts.Absent`, `facts.Unknown`, `facts.Broken`); rule broke: it raised.
"""


@dataclass(frozen=True)
class CheckResult:
    """The result of one rule.

    `reason` explains a status other than pass, warn and fail, or adds to one: a sentence for people. Code
    decides by `reason_kind`, and by `follows_from`, the code of the rule that failed before it. `trace` is
    for `-v`. `deliberate` means that the rule was left out on purpose: ignored by the user's configuration,
    or more expensive than this command allows. `silenced_errors` is how many errors that configuration hides.
    `unjudged` is what it examined but could not judge; `blind`:
    it judges paths of a job but could not see any; `remembered`: an earlier run found it, and nothing that it
    depends on has changed since. The time taken does not count in comparisons.
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
    silenced_errors: int = 0
    reason_kind: ReasonKind | None = None
    follows_from: str | None = None
    blind: bool = False
    remembered: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class PathVerdict:
    """What becomes of one path of a job, for instance "async rollout", as far as the rules can determine.

    "will_fail": an error strikes it, first in `phase` (None: the rule cannot determine when), and `codes` are
    the rules that found such errors, in the order in which they strike. "not_checked": `codes` are the rules
    that could not check; there are none where nothing was judged at all. `not_judged` names the rules about
    this path that were left out, `may_stop` those that found what stops it under some setting.
    """

    path: str
    state: PathState
    phase: Phase | None = None
    codes: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    may_stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Repair:
    """The result of one fix: planned, and after `--apply` judged again in fresh state.

    `transaction` is the name under which `verl-doctor undo` reverts it: the journal's folder and a number,
    shared by all repairs of one run. `notes` are sentences on what else would change, and on what undo cannot
    restore.
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
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """The verdict after a plan, with or without unsafe repairs, and the rules that would still find errors.

    The unsafe repairs are those of the plan.

    Edits of launch files are judged in memory; safe repairs elsewhere are presumed to work.
    """

    unsafe: bool
    verdict: Verdict
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnvironmentFiles:
    """The files of `--output-env DIR`: their paths, their contents, and a diff of what a plan would change.

    `override` is how verl's command line passes a variable to the workers, "" when this verl passes none on.
    """

    shell: str
    runtime_env: str
    variables: tuple[Mapping[str, Any], ...] = ()
    diff: str = ""
    override: str = ""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes with something in common: what, how many, and which (`system.node_names`), "" for most.

    The nodes are given as ranges.
    """

    what: str
    count: int
    nodes: str


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster that were queried. `agree` of them match in everything compared.

    `kinds` groups those that responded by their GPUs, `missing` the others by the reason.
    """

    answered: int
    agree: int
    kinds: tuple[NodeGroup, ...] = ()
    missing: tuple[NodeGroup, ...] = ()

    @property
    def lost(self) -> int:
        """The number of nodes that did not respond."""
        return sum(group.count for group in self.missing)


@dataclass(frozen=True)
class Unchanged:
    """The number of rules whose result is reused, and its age in seconds.

    Nothing that the result depends on has changed.
    """

    rules: int
    seconds: int


@dataclass(frozen=True)
class JobReport:
    """What was found about one of several launch files."""

    file: str
    report: Report


@dataclass(frozen=True)
class Report:
    """Everything found in one run.

    `not_selected` names for each path the rules that would judge it but were not selected. `unexamined` is
    why there is no verl to judge, "" where there is a verl or where rules were selected by name. `repairs` is
    None for a check; `applied` is whether they were carried out; `environment` are the requested files.
    `nodes` is None when one machine was judged. `unchanged` are the results of an earlier run. `forecasts`
    are the verdicts after a plan, `jobs` the reports on each launch file if they were judged separately.
    `fixes_of_variables` are the fixes that need a folder for the variables.
    """

    target: Mapping[str, Any]
    results: tuple[CheckResult, ...]
    seconds: float = 0.0
    fix_safety: Mapping[str, Safety] = field(default_factory=dict)
    fixes_of_variables: frozenset[str] = frozenset()
    not_selected: Mapping[str, Iterable[str]] = field(default_factory=dict)
    unexamined: str = ""
    repairs: tuple[Repair, ...] | None = None
    applied: bool = False
    environment: EnvironmentFiles | None = None
    nodes: Nodes | None = None
    forecasts: tuple[Forecast, ...] = ()
    unchanged: Unchanged | None = None
    jobs: tuple[JobReport, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole run: the worst state of any path of the job.

        A failure outweighs what could not be checked.
        """
        states = {path.state for path in self.paths}
        if "will_fail" in states:
            return "failures"
        if "not_checked" in states:
            return "could_not_check"
        return "warnings" if any(result.status == "warn" for result in self.results) else "ok"

    @property
    def could_not_check(self) -> bool:
        """Whether the absence of findings proves nothing.

        There is no verl, a node did not respond, a rule broke or could not see the sources, or none judged
        anything.
        """
        if self.unexamined or (self.nodes is not None and (self.nodes.lost or not self.nodes.answered)):
            return True
        if any(result.blind for result in self.results):
            return True
        found = {result.status for result in self.results if not result.deliberate}
        if found <= {"not_applicable"}:
            return not self.repairs  # what a repair mends may be gone afterwards
        return "error" in found or ("skipped" in found and not found & {"pass", "warn"})

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many rules were not judged because of which rule that failed, by its code."""
        failed = {result.code for result in self.results if result.status == "fail"}
        return Counter(result.follows_from for result in self.results if result.follows_from in failed)

    @property
    def summary(self) -> dict[str, int]:
        """How many rules ended in each status."""
        counted = Counter(result.status for result in self.results)
        return {status: counted[status] for status in STATUSES}

    @cached_property
    def paths(self) -> tuple[PathVerdict, ...]:
        """The verdict for each path of a job that a rule judged or an error stops.

        For the job as a whole where there is no such path.
        """
        names = dict.fromkeys(path for result in self.results for path in result.paths)
        names |= dict.fromkeys(
            path
            for _, finding in self.findings()
            if finding.severity == "error"
            for path in finding.stops
            if path != EVERY_JOB
        )
        return tuple(_path_verdict(path, self) for path in names or (JOB,))

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """0 no fault was found, 1 the job will fail (`strict`: warnings too), 3 it could not be checked."""
        if strict and self.verdict == "warnings":
            return ExitCode.FAILED
        return EXIT_CODES[self.verdict]

    def findings(self) -> list[tuple[CheckResult, Finding]]:
        """Return every finding with the result that it belongs to, in the order in which they strike."""
        found = [(result, finding) for result in self.results for finding in result.findings]
        return sorted(found, key=lambda pair: when_it_strikes(pair[1]))


def when_it_strikes(finding: Finding) -> int:
    """Return the position of its phase among all phases; an undetermined phase comes last."""
    return PHASES.index(finding.phase) if finding.phase else _LAST


def status_of(findings: Iterable[Finding]) -> Status:
    """Return the status of a rule that ran: its worst finding decides, and hints alone are a pass."""
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "fail"
    return "warn" if "warning" in severities else "pass"


def _path_verdict(path: str, report: Report) -> PathVerdict:
    found = report.findings()
    striking = [(result.code, finding.phase) for result, finding in found if _strikes(finding, path)]
    may_stop = _codes(result.code for result, finding in found if _may_stop(finding, path))
    if striking:
        codes = _codes(code for code, _ in striking)
        return PathVerdict(path, "will_fail", striking[0][1], codes, may_stop=may_stop)
    blind = _codes(
        result.code
        for result in report.results
        if not result.deliberate
        and (result.status == "error" or any(_keeps_open(entry, path) for entry in result.unjudged))
    )
    left_out = _codes(
        result.code for result in report.results if path in result.paths and result.status == "skipped"
    )
    state: PathState = "not_checked" if blind or report.could_not_check else "no_fault_found"
    not_judged = _codes((*left_out, *report.not_selected.get(path, ())))
    return PathVerdict(path, state, None, blind, not_judged, may_stop)


def _keeps_open(entry: Unjudged, path: str) -> bool:
    """Return whether this path cannot be judged because of what a rule could not judge."""
    return path in entry.paths or EVERY_JOB in entry.paths


def _codes(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(codes))


def _strikes(finding: Finding, path: str) -> bool:
    """Return whether it stops this path: an error that names no path stops all of them."""
    if finding.severity != "error":
        return False
    return not finding.stops or path in finding.stops or EVERY_JOB in finding.stops


def _may_stop(finding: Finding, path: str) -> bool:
    if path in finding.may_stop:
        return True
    return finding.severity != "error" and (path in finding.stops or EVERY_JOB in finding.stops)


def with_repairs(
    report: Report,
    repairs: Iterable[Repair],
    *,
    applied: bool,
    environment: EnvironmentFiles | None = None,
) -> Report:
    """Return the same report with the results of the fixes."""
    return replace(report, repairs=tuple(repairs), applied=applied, environment=environment)
