"""Judging many nodes: a rule is judged once for each distinct set of the facts that it reads, however many nodes have it."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from verl_doctor.toolkit.fleet_facts import NodeFacts, Recent
from verl_doctor.toolkit.fleet_fold import folded
from verl_doctor.toolkit.fleet_names import fold, shortened
from verl_doctor.toolkit.judge import Selection, facts_of, in_order, judge_one
from verl_doctor.toolkit.result import CheckResult, Status, status_of
from verl_doctor.toolkit.rule import Check, Finding
from verl_doctor.toolkit.text import counted, listed

_WORST_FIRST: tuple[Status, ...] = ("fail", "error", "warn", "pass", "skipped", "not_applicable")
_REASONS = 3  # told for one rule


@dataclass(frozen=True)
class _Rule:
    check: Check
    facts: tuple[type, ...]
    requires: tuple[str, ...]
    wanted: bool


class NodeJudge:
    """The rules that can be judged from one node's facts alone, and what they said of the nodes so far."""

    def __init__(self, checks: Sequence[Check], selection: Selection, today: date) -> None:
        self._selection = selection
        self._today = today
        order = in_order([check for check in checks if check.cost != "cluster"], selection)
        known = {check.code for check in order}
        self._rules = [
            _Rule(check, tuple(facts_of([check])), tuple(check.requires & known), selection.wants(check))
            for check in order
        ]
        self._known: dict[str, Recent[tuple[object, ...], CheckResult]] = {
            rule.check.code: Recent() for rule in self._rules
        }
        self._said: dict[str, dict[CheckResult, array[int]]] = {
            rule.check.code: {} for rule in self._rules if rule.wanted
        }
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.failing: Counter[str] = Counter()
        """On how many nodes each rule fails."""

    def judge(self, node: int, facts: NodeFacts) -> None:
        """Judge one node, known by a number."""
        results: dict[str, CheckResult] = {}
        for rule in self._rules:
            code = rule.check.code
            result = results[code] = self._judge_one(rule, facts, results)
            if rule.wanted:
                self._said[code].setdefault(result, array("I")).append(node)
                self.failing[code] += result.status == "fail"

    def results(self, names: Sequence[str], addresses: Sequence[str]) -> tuple[CheckResult, ...]:
        """One result a rule, over all nodes; equal findings are one that names the nodes."""
        return tuple(
            replace(_joined(self._said[code], names, addresses), seconds=self._seconds[code])
            for code in sorted(self._said)
            if self._said[code]
        )

    def _judge_one(self, rule: _Rule, facts: NodeFacts, results: Mapping[str, CheckResult]) -> CheckResult:
        check = rule.check
        key = (
            facts.numbers(rule.facts),
            *((results[code].status, results[code].reason) for code in rule.requires),
        )
        known = self._known[check.code]
        if (result := known.get(key)) is None:
            result = known.put(key, judge_one(check, facts, self._selection, results, self._today))
            self._seconds[check.code] += result.seconds
        return result


def _joined(
    said: Mapping[CheckResult, Iterable[int]], names: Sequence[str], addresses: Sequence[str]
) -> CheckResult:
    """What one rule said of all nodes, as one result: the worst status, and why it could not be judged on some."""
    first = min(said, key=lambda result: (result.status, result.reason))
    by_finding: dict[Finding, list[int]] = {}
    by_reason: dict[tuple[Status, str], list[int]] = {}
    for result, nodes in said.items():
        for finding in result.findings:
            by_finding.setdefault(finding, []).extend(nodes)
        by_reason.setdefault((result.status, result.reason), []).extend(nodes)
    findings = folded(by_finding, names, addresses)
    status = worst(status for status, _ in by_reason)
    if status in {"fail", "warn", "pass"}:
        status = status_of(findings)
    return replace(
        first,
        status=status,
        reason=_reason(by_reason, status, names),
        findings=findings,
        paths=tuple(sorted({path for result in said for path in result.paths})),
        trace=min((result.trace for result in said if result.trace), default=""),
        deliberate=all(result.deliberate for result in said),
        unjudged=tuple(sorted({entry for result in said for entry in result.unjudged}, key=repr)),
    )


def worst(statuses: Iterable[Status]) -> Status:
    """How a rule ended that ended in several ways: judged on some is judged."""
    return min(statuses, key=_WORST_FIRST.index)


def _reason(
    by_reason: Mapping[tuple[Status, str], Sequence[int]], status: Status, names: Sequence[str]
) -> str:
    """Why the rule ended as it did; and where it could not be judged on some nodes, on which, and why there."""
    if len(by_reason) == 1:
        return next(iter(by_reason))[1]
    told = []
    for (ended, reason), nodes in sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        if reason and ended in {"error", "skipped"}:
            told.append(f"{reason} on {_named(nodes, names)}")
        elif reason and ended == status:
            told.append(reason)
    return listed(told, _REASONS)


def _named(nodes: Sequence[int], names: Sequence[str]) -> str:
    """Which nodes; most of them are a number."""
    if 2 * len(nodes) > len(names):
        return counted(len(nodes), "node")
    return shortened(fold(names[node] for node in nodes), len(nodes))
