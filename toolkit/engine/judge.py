"""Runs the selected rules over collected facts, and masks what follows from an already failed rule."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from graphlib import CycleError, TopologicalSorter
from typing import Any

from verl_doctor.toolkit.engine.collect import Collection, Facts
from verl_doctor.toolkit.engine.config import Ignore
from verl_doctor.toolkit.facts import Absent, Broken, Collector, FactReference, Need, Unknown, arguments_from
from verl_doctor.toolkit.result import CheckResult, ReasonKind, Status, status_of
from verl_doctor.toolkit.rule import SEVERITIES, Check, Finding, Unjudged, family_of
from verl_doctor.toolkit.system.restore import restored

DEEP = frozenset({"live", "gpu"})
"""The cost classes that --deep adds."""

# The doctor itself could not work: that reveals nothing about the target.
_OUT_OF_MEANS = frozenset({"no temporary folder", "no more processes"})

_CODE = re.compile(r"[A-Z]+\d{3}")

_REQUESTED_BY = {
    **dict.fromkeys(DEEP, "needs --deep"),
    "cluster": "needs --cluster",
    "slow": "verl-doctor smoke runs it",
}


@dataclass(frozen=True)
class Selection:
    """The rules that the user selected: codes or whole families; an empty `select` means all.

    `costs` are the permitted cost classes. `ignores` have their reason and end date.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    costs: frozenset[str] = frozenset({"instant"})
    ignores: Mapping[str, Ignore] = field(default_factory=dict)

    def selects(self, check: Check) -> bool:
        """Return whether the rule was selected at all, whatever its cost."""
        named = not self.select or any(_matches(word, check.code) for word in self.select)
        return named and not any(_matches(word, check.code) for word in self.ignore)

    def masks(self, code: str) -> bool:
        """Return whether a failure of this rule skips the rules that require it.

        Not when the user ignores it, or selects others by their full codes: those are to be judged.
        """
        if any(_matches(word, code) for word in self.ignore):
            return False
        by_code = bool(self.select) and all(_CODE.fullmatch(word) for word in self.select)
        return not by_code or code in self.select

    def ignored(self, check: Check) -> Ignore | None:
        """Return the user's entry that silences this rule: its own, or the nearest family's."""
        words = [word for word in self.ignores if _matches(word, check.code)]
        return self.ignores[max(words, key=len)] if words else None


def _matches(word: str, code: str) -> bool:
    """Return whether a word matches a code.

    The word is the code, the letters of its family, or these with the first digits: VLLM101, VLLM, VLLM1.
    """
    return word.startswith(family_of(code)) and code.startswith(word)


def unknown_words(words: Iterable[str], checks: Iterable[Check]) -> list[str]:
    """Return the words that match no rule and no family."""
    known = list(checks)
    return [word for word in words if not any(_matches(word, check.code) for check in known)]


def judge(
    checks: Sequence[Check],
    collection: Collection,
    selection: Selection,
    *,
    today: date,
    watch: Callable[[str], None] = lambda _: None,
) -> tuple[CheckResult, ...]:
    """Run the selected rules and those that they require, and report the selected rules in order of code.

    `watch` receives the code of each rule before it runs, and its place among them.
    """
    order = in_order(checks, selection)
    unknown = [
        check
        for check in order
        if _is_within_cost(check, selection) and _remembered(check, collection) is None
    ]
    collection.start(_references_of(unknown))
    results: dict[str, CheckResult] = {}
    for number, check in enumerate(order, 1):
        watch(f"rule {number} of {len(order)}: {check.code}")
        results[check.code] = judge_one(check, collection, selection, results, today)
    return tuple(results[code] for code in sorted(c.code for c in checks if selection.selects(c)))


def in_order(checks: Sequence[Check], selection: Selection) -> list[Check]:
    """Return the selected rules and those that they require, each after its requirements."""
    by_code = {check.code: check for check in checks}
    return [by_code[code] for code in _order(by_code, [c.code for c in checks if selection.selects(c)])]


def not_selected(
    checks: Iterable[Check], collection: Collection, results: Sequence[CheckResult]
) -> dict[str, list[str]]:
    """Return for each path that a rule judged the rules that would judge it too but were not selected.

    Nothing is collected for that: a rule whose paths are not known yet may judge any of them.
    """
    judged = sorted({path for result in results for path in result.paths})
    ran = {result.code for result in results}
    others = [check for check in checks if check.code not in ran] if judged else []
    found: dict[str, list[str]] = {}
    for check in others:
        pending = [need.reference for need in check.paths_needs if not collection.has(need.reference)]
        may_run = all(collection.is_likely(fact) for fact in pending)
        for path in _paths(check, collection) if not pending else judged if may_run else ():
            found.setdefault(path, []).append(check.code)
    return found


def _order(by_code: Mapping[str, Check], wanted: Iterable[str]) -> list[str]:
    """Order requirements first.

    An unknown requirement or a cycle is ignored: a plugin must not stop the run.
    """
    graph: dict[str, set[str]] = {}
    waiting = list(wanted)
    while waiting:
        code = waiting.pop()
        if code not in graph:
            graph[code] = {need for need in by_code[code].requires if need in by_code}
            waiting.extend(graph[code])
    try:
        return list(TopologicalSorter({code: sorted(graph[code]) for code in sorted(graph)}).static_order())
    except CycleError:
        return sorted(graph)


def facts_of(checks: Iterable[Check]) -> Iterable[type]:
    """Yield the facts that these rules need directly, each once."""
    return [reference.fact for reference in _references_of(checks)]


def _references_of(checks: Iterable[Check]) -> Iterable[FactReference]:
    return dict.fromkeys(
        need.reference
        for check in checks
        for need in (*check.applies_needs, *check.needs, *check.paths_needs, *check.unjudged_needs)
    )


def beyond(checks: Iterable[Check], collectors: Iterable[Collector], costs: frozenset[str]) -> set[type]:
    """Return facts that only rules of other costs need: collecting them would cost what such a rule costs."""
    needs = {collector.fact: [need.fact for need in collector.needs] for collector in collectors}

    def wanted(rules: Iterable[Check]) -> set[type]:
        found: set[type] = set()
        waiting = list(facts_of(rules))
        while waiting:
            fact = waiting.pop()
            if fact not in found:
                found.add(fact)
                waiting += needs.get(fact, ())
        return found

    every = list(checks)
    return wanted(every) - wanted(check for check in every if check.cost in costs)


def _is_within_cost(check: Check, selection: Selection) -> bool:
    return check.cost in selection.costs


def judge_one(
    check: Check,
    collection: Facts,
    selection: Selection,
    results: Mapping[str, CheckResult],
    today: date,
) -> CheckResult:
    """Judge one rule, after all that it requires: their `results` may make it pointless."""
    started = time.perf_counter()
    known = _remembered(check, collection)
    passed_over = _passed_over(check, selection, results, today)
    verdict = passed_over or known or _judged(check, collection)
    ignore = selection.ignored(check)
    if ignore is not None and verdict.findings and not verdict.reason:
        verdict = _without_ignored(verdict, ignore, today)
    elif verdict.reason_kind == "ignored until a date" and check.cost == "instant":
        hidden = known or _judged(check, collection)
        in_vain = hidden.status == "pass" and not hidden.findings and check.code in selection.ignores
        reason = f"{verdict.reason}; it finds nothing here" if in_vain else verdict.reason
        verdict = replace(verdict, reason=reason, silenced_errors=_errors(hidden.findings))
    return CheckResult(
        code=check.code,
        title=check.title,
        seconds=time.perf_counter() - started,
        paths=_paths(check, collection) if known is None else known.paths,
        remembered=passed_over is None and known is not None,
        blind=check.paths is not None and verdict.reason_kind == "fact unknown",
        **{name: value for name, value in vars(verdict).items() if name != "paths"},
    )


def _without_ignored(verdict: _Outcome, ignore: Ignore, today: date) -> _Outcome:
    """Return the outcome without findings on ignored subjects, or with a note that the entry has expired."""
    if not ignore.only or today > ignore.until:
        sentence = f"it was ignored until {ignore.until}: {ignore.reason}"
        return replace(verdict, reason=sentence, reason_kind="ignore expired")
    named = {finding.subject.name for finding in verdict.findings if finding.subject is not None}
    names = [name for name in ignore.only if name in named]
    left = tuple(
        found for found in verdict.findings if found.subject is None or found.subject.name not in names
    )
    if not names:
        return verdict
    sentence = f"{', '.join(names)} ignored until {ignore.until}: {ignore.reason}"
    status = status_of(left)
    return replace(
        verdict,
        findings=left,
        status=status,
        reason=sentence,
        reason_kind="ignored until a date",
        silenced_errors=_errors(verdict.findings) - _errors(left),
    )


def _errors(findings: Sequence[Finding]) -> int:
    return sum(finding.severity == "error" for finding in findings)


@dataclass(frozen=True)
class _Outcome:
    """The outcome of judging one rule."""

    status: Status
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    trace: str = ""
    deliberate: bool = False
    unjudged: tuple[Unjudged, ...] = ()
    silenced_errors: int = 0
    reason_kind: ReasonKind | None = None
    follows_from: str | None = None
    paths: tuple[str, ...] = ()
    """Of a remembered outcome: the paths of the job that the rule judges."""


def _remembered(check: Check, collection: Facts) -> _Outcome | None:
    """Return the rule's outcome in an earlier run, where it would be the same again."""
    if not isinstance(collection, Collection) or collection.memory is None:
        return None
    kept = collection.memory.outcome(check)
    try:
        return None if kept is None else restored(_Outcome, kept)
    except (TypeError, RecursionError):
        return None


def _judged(check: Check, collection: Facts) -> _Outcome:
    """Return the rule's outcome now, and record it for the next run."""
    outcome = _outcome(check, collection)
    if isinstance(collection, Collection) and collection.memory is not None and outcome.status != "error":
        paths = _paths(check, collection)
        collection.memory.note(check, {k: v for k, v in asdict(replace(outcome, paths=paths)).items() if v})
    return outcome


def _paths(check: Check, collection: Facts) -> tuple[str, ...]:
    """Return the paths of the job that this rule judges here; none when they cannot be determined."""
    if check.paths is None:
        return ()
    try:
        found = _call(check.paths, check.paths_needs, collection)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the rule itself will report what broke
        return ()
    return () if isinstance(found, Unknown) else tuple(found)


def _passed_over(
    check: Check, selection: Selection, results: Mapping[str, CheckResult], today: date
) -> _Outcome | None:
    """Return why the rule is not judged at all, or None when it is to be judged."""
    ignore = selection.ignored(check)
    if ignore is not None and not ignore.only and today <= ignore.until:
        sentence = f"ignored until {ignore.until}: {ignore.reason}"
        return _Outcome("skipped", sentence, deliberate=True, reason_kind="ignored until a date")
    if check.cost not in selection.costs:
        how = _REQUESTED_BY.get(check.cost, "is not run by this command")
        return _Outcome("skipped", how, deliberate=True, reason_kind="cost not paid")
    for code in sorted(check.requires & results.keys()):
        failed = not _holds(results[code]) and not _is_tried_anyway(check, results[code])
        if selection.masks(code) and failed:
            first = results[code].follows_from or code
            return _Outcome(
                "skipped",
                f"follows from {first}",
                reason_kind="follows from another rule",
                follows_from=first,
            )
    return None


def _is_tried_anyway(check: Check, required: CheckResult) -> bool:
    """Return whether an actual trial counts although a required rule could not check.

    No other line reports the fault.
    """
    return check.cost in DEEP and required.reason_kind == "fact unknown" and required.status == "skipped"


def _holds(required: CheckResult) -> bool:
    """Return whether rules that require this one make sense.

    They do if it passed, was left out on purpose, or is irrelevant.
    """
    return required.status in {"pass", "warn", "not_applicable"} or required.deliberate


def _outcome(check: Check, collection: Facts) -> _Outcome:
    try:
        if check.applies is not None:
            relevance = _call(check.applies, check.applies_needs, collection)
            if isinstance(relevance, Unknown):
                return _without(relevance)
            if relevance is not None:
                return _Outcome("not_applicable", relevance, reason_kind="not relevant")
        found = _call(lambda **facts: tuple(check.judge(**facts)), check.needs, collection)
        if isinstance(found, Unknown):
            return _without(found)
        findings = tuple(_complete(finding, check) for finding in found)
        return _Outcome(status_of(findings), findings=findings, unjudged=_unjudged(check, collection))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a broken rule is one result, not the end of the run
        sentence = f"the rule broke: {type(error).__name__}: {error}"
        return _Outcome("error", sentence, trace=traceback.format_exc(), reason_kind="rule broke")


def _unjudged(check: Check, collection: Facts) -> tuple[Unjudged, ...]:
    """Return what the rule examined but could not judge."""
    if check.unjudged is None:
        return ()
    found = _call(check.unjudged, check.unjudged_needs, collection)
    return () if isinstance(found, Unknown) else tuple(found)


def _complete(finding: Finding, check: Check) -> Finding:
    """Give a finding its rule's severity and phase.

    Raises TypeError or ValueError when a plugin yields something else.
    """
    if not isinstance(finding, Finding) or not isinstance(finding.message, str):
        raise TypeError(f"a rule yields findings with a message, not {finding!r:.80}")
    severity = finding.severity or check.severity
    if severity not in SEVERITIES:
        raise ValueError(f"a severity is one of {', '.join(SEVERITIES)}, not {severity!r:.40}")
    return replace(finding, severity=severity, phase=finding.phase or check.phase)


def _call(function: Callable[..., Any], needs: tuple[Need, ...], collection: Facts) -> Any:
    if isinstance(collection, Collection) and (missing := collection.lacking(needs)) is not None:
        return missing
    arguments = arguments_from(needs, collection.get)
    if isinstance(arguments, Unknown):
        return arguments
    return next(filter(_is_for_lack_of_means, arguments.values()), None) or function(**arguments)


def _is_for_lack_of_means(fact: Any) -> bool:
    """Return whether a fact is unavailable because the doctor itself could not work.

    No rule may treat that as the target's fault.
    """
    return isinstance(fact, Unknown) and fact.kind in _OUT_OF_MEANS


def _without(missing: Unknown) -> _Outcome:
    """Return the outcome of a rule whose fact is unavailable."""
    if isinstance(missing, Broken):
        return _Outcome("error", missing.reason, trace=missing.trace, reason_kind="fact broken")
    if missing.kind in _OUT_OF_MEANS:
        return _Outcome("error", missing.reason, reason_kind="fact broken")
    if isinstance(missing, Absent):
        return _Outcome("not_applicable", missing.reason, reason_kind="fact absent")
    kind: ReasonKind = "cost not paid" if missing.kind == "not tried" else "fact unknown"
    return _Outcome("skipped", missing.reason, reason_kind=kind)
