"""Judges many nodes, running each rule once for each distinct set of the facts that it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TypeVar

from verl_doctor.toolkit.cluster.fleet_facts import NodeFacts, Recent
from verl_doctor.toolkit.cluster.fleet_fold import folded
from verl_doctor.toolkit.engine.judge import Selection, facts_of, in_order, judge_one
from verl_doctor.toolkit.result import CheckResult, Status, status_of
from verl_doctor.toolkit.rule import Check, Finding
from verl_doctor.toolkit.system.node_names import fold, shortened
from verl_doctor.toolkit.text import counted, listed

T = TypeVar("T")

_WORST_FIRST: tuple[Status, ...] = ("fail", "error", "warn", "pass", "skipped", "not_applicable")
_REASONS = 3  # reasons shown for one rule


@dataclass
class _Rule:
    """A rule and its results.

    Each has the number of its first node, and applies up to the node of the next result.
    """

    check: Check
    facts: tuple[type, ...]
    requires: tuple[str, ...]
    wanted: bool
    known: Recent[tuple[object, ...], CheckResult] = field(default_factory=Recent)
    results: list[tuple[int, CheckResult]] = field(default_factory=list)
    seconds: float = 0.0

    def by_result(self, nodes: int) -> dict[CheckResult, list[int]]:
        """Return which nodes have which result, for this number of nodes."""
        found: dict[CheckResult, list[int]] = {}
        ends = [*(first for first, _ in self.results[1:]), nodes]
        for (first, result), end in zip(self.results, ends, strict=True):
            found.setdefault(result, []).extend(range(first, end))
        return found


class NodeJudge:
    """The rules about single nodes, and their results for the nodes so far.

    For each node, only those rules run for which a fact or a required rule differs from the previous node.
    """

    def __init__(self, checks: Sequence[Check], selection: Selection, today: date) -> None:
        self._selection = selection
        self._today = today
        order = in_order([check for check in checks if check.cost != "cluster"], selection)
        known = {check.code for check in order}
        self._rules = [
            _Rule(check, tuple(facts_of([check])), tuple(check.requires & known), selection.selects(check))
            for check in order
        ]
        self._concerned: Recent[frozenset[type], list[_Rule]] = Recent()
        self._nodes = 0
        self._numbers: Mapping[type, int] = {}
        self._results: dict[str, CheckResult] = {}
        self._failing: set[str] = set()
        self.failing: Counter[str] = Counter()
        """The number of nodes on which each rule fails."""

    def judge(self, facts: NodeFacts) -> None:
        """Judge one more node."""
        differ = frozenset(fact for fact, _ in self._numbers.items() ^ facts.numbers.items())
        self._numbers = facts.numbers
        for rule in self._rules if self._nodes == 0 else self._concerned_by(differ):
            code = rule.check.code
            result = self._judge_one(rule, facts)
            if result != self._results.get(code):
                self._results[code] = result
                rule.results.append((self._nodes, result))
                (self._failing.add if result.status == "fail" else self._failing.discard)(code)
        self.failing.update(self._failing)
        self._nodes += 1

    def results(self, names: Sequence[str], addresses: Sequence[str]) -> tuple[CheckResult, ...]:
        """Return one result per rule over all nodes. Equal findings become one that names the nodes."""
        wanted = [rule for rule in self._rules if rule.wanted and self._nodes]
        return tuple(
            replace(_joined(rule.by_result(self._nodes), names, addresses), seconds=rule.seconds)
            for rule in sorted(wanted, key=lambda rule: rule.check.code)
        )

    def _concerned_by(self, differ: frozenset[type]) -> list[_Rule]:
        """Return rules that read one of these facts or require such a rule, each after its requirements."""
        concerned = self._concerned.get(differ)
        if concerned is None:
            codes: set[str] = set()
            concerned = self._concerned.put(differ, [])
            for rule in self._rules:
                if not differ.isdisjoint(rule.facts) or not codes.isdisjoint(rule.requires):
                    codes.add(rule.check.code)
                    concerned.append(rule)
        return concerned

    def _judge_one(self, rule: _Rule, facts: NodeFacts) -> CheckResult:
        number = facts.numbers.get
        required = [
            (self._results[code].status, self._results[code].deliberate, self._results[code].follows_from)
            for code in rule.requires
        ]
        key = (*[number(fact, 0) for fact in rule.facts], *required)
        if (result := rule.known.get(key)) is None:
            result = judge_one(rule.check, facts, self._selection, self._results, self._today)
            rule.known.put(key, result)
            rule.seconds += result.seconds
        return result


def _joined(
    by_result: Mapping[CheckResult, Iterable[int]], names: Sequence[str], addresses: Sequence[str]
) -> CheckResult:
    """Return one rule's results for all nodes as one.

    They are the worst status, and why the rule could not be judged on some nodes.
    """
    first = min(by_result, key=lambda result: (result.status, result.reason))
    by_finding: dict[Finding, list[int]] = {}
    by_reason: dict[tuple[Status, str], list[int]] = {}
    for result, nodes in by_result.items():
        for finding in result.findings:
            by_finding.setdefault(finding, []).extend(nodes)
        by_reason.setdefault((result.status, result.reason), []).extend(nodes)
    findings = folded(by_finding, names, addresses)
    status = worst(status for status, _ in by_reason)
    if status in {"fail", "warn", "pass"}:
        status = status_of(findings)
    ended_so = [result for result in by_result if result.status == status] or list(by_result)
    return replace(
        first,
        status=status,
        reason_kind=common(result.reason_kind for result in ended_so),
        follows_from=common(result.follows_from for result in ended_so),
        reason=_reason(by_reason, status, names),
        findings=findings,
        paths=tuple(sorted({path for result in by_result for path in result.paths})),
        trace=min((result.trace for result in by_result if result.trace), default=""),
        deliberate=all(result.deliberate for result in by_result),
        unjudged=tuple(sorted({entry for result in by_result for entry in result.unjudged}, key=repr)),
    )


def common(values: Iterable[T | None]) -> T | None:
    """Return the common value of all of them, None if they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def worst(statuses: Iterable[Status]) -> Status:
    """Return the combined status of a rule: judged on some nodes counts as judged."""
    return min(statuses, key=_WORST_FIRST.index)


def _reason(
    by_reason: Mapping[tuple[Status, str], Sequence[int]], status: Status, names: Sequence[str]
) -> str:
    """Return the reason for the rule's status, and the nodes that could not be judged, with their reasons."""
    if len(by_reason) == 1:
        return next(iter(by_reason))[1]
    reasons = []
    for (ended, reason), nodes in sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        if reason and ended in {"error", "skipped"}:
            reasons.append(f"{reason} on {_named(nodes, names)}")
        elif reason and ended == status:
            reasons.append(reason)
    return listed(reasons, _REASONS)


def _named(nodes: Sequence[int], names: Sequence[str]) -> str:
    """Name the nodes; most of them are given as a number."""
    if 2 * len(nodes) > len(names):
        return counted(len(nodes), "node")
    return shortened(fold(names[node] for node in nodes), len(nodes))
