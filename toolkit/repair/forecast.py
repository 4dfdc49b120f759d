"""Forecasts the result of a plan: its edits of launch files are judged in memory.

Other changes cannot be judged in advance. Safe repairs of other files are assumed to work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_doctor.toolkit.change import Change, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair.plan import Plan, plan_of, plans
from verl_doctor.toolkit.result import Forecast, Report, status_of
from verl_doctor.toolkit.rule import Finding

_Edit = tuple[object, ...]
_MOST = 40  # maximum number of edits judged one after the other


@dataclass(frozen=True)
class Foreseen:
    """The verdicts after the repairs, and the plans that only arose after earlier edits."""

    forecasts: tuple[Forecast, ...]
    plans: tuple[Plan, ...]


def foresee(session: Session, collection: Collection, report: Report) -> Foreseen:
    """Judge the job as it would be after the safe repairs of its launch files, then also the unsafe ones."""
    seen, known = (session, collection, report), _facts_without_script(session, collection)
    planned = plans(session, collection, report)
    first = _numbered(planned, Counter())
    later: dict[tuple[_Edit, int], Plan] = {}
    applied: Counter[_Edit] = Counter()
    forecasts: list[Forecast] = []
    for unsafe in (False, True):
        for done in range(_MOST + 1):
            for number, plan in _numbered(planned, applied).items():
                if number not in first and _is_edit(plan, seen[0]) and not plan.refusal:
                    later.setdefault(number, plan)
            waiting = [plan for plan in planned if _may_do(plan, unsafe=unsafe) and _is_edit(plan, seen[0])]
            if not waiting or done == _MOST:
                break
            judged = _judged(_edited(seen[0], waiting[0]), known)
            if _is_worse(seen[2], judged[2]):
                break
            seen = *judged[:2], with_best_fixes(*judged)
            edit, before, planned = edit_of(waiting[0]), planned, plans(seen[0], seen[1], seen[2])
            if _count(edit, planned) < _count(edit, before):
                applied[edit] += 1
        # Edits that only lead to another fault are undone.
        last = (session, collection, report) if _is_worse(report, seen[2]) else seen
        presumed = _presumed(*last, unsafe=unsafe)
        if not forecasts or presumed.verdict != forecasts[0].verdict:
            forecasts.append(Forecast(unsafe=unsafe, verdict=presumed.verdict, left=_errors(presumed)))
    return Foreseen(tuple(forecasts), tuple(later.values()))


def _numbered(planned: Sequence[Plan], applied: Counter[_Edit]) -> dict[tuple[_Edit, int], Plan]:
    """Return plans by their edits, numbered where several have the same.

    Such plans edit different lines in the same way.
    """
    count = Counter(applied)
    numbered = {}
    for plan in planned:
        edit = edit_of(plan)
        count[edit] += 1
        numbered[edit, count[edit]] = plan
    return numbered


def _count(edit: _Edit, planned: Sequence[Plan]) -> int:
    return sum(edit_of(plan) == edit for plan in planned)


def edit_of(plan: Plan) -> _Edit:
    """Return what a plan does, wherever its words stand.

    Other repairs move them, and edit the lines next to them.
    """
    words = [
        (change.path, sign, word, count)
        for change in plan.changes
        if isinstance(change, ReplaceFile)
        for sign, old, new in (("-", change.after, change.before), ("+", change.before, change.after))
        for word, count in (Counter(new.split()) - Counter(old.split())).items()
    ]
    return plan.fix.id, plan.code, frozenset(words) or plan


def with_best_fixes(session: Session, collection: Collection, report: Report) -> Report:
    """Return the report, where each error has the best of its corrections.

    An error without any other correction has a fix of last resort.
    """
    fixes = {code: fix.id for fix in session.registry.fixes if fix.last_resort for code in fix.repairs}
    results = [
        replace(
            result,
            findings=tuple(
                replace(finding, fix=finding.fix or fixes[result.code])
                if finding.severity == "error" and result.code in fixes
                else finding
                for finding in result.findings
            ),
        )
        for result in report.results
    ]
    return _with_best_corrections(session, collection, replace(report, results=tuple(results)))


def _with_best_corrections(session: Session, collection: Collection, report: Report) -> Report:
    """Return the report, where each error has its first correction that leaves the fewest errors.

    Errors without other corrections, and those whose correction does not edit a launch file alone, stay as
    they are.
    """
    if not session.target.files or session.facts_file is not None:
        return report
    known: dict[type, Any] = {}
    results = []
    for result in report.results:
        findings = []
        for finding in result.findings:
            others = finding.correction.others if finding.correction and finding.severity == "error" else ()
            if others:
                known = known or _facts_without_script(session, collection)
                choices = [finding, *(replace(finding, correction=other, fix=other.fix) for other in others)]
                finding = _best(choices, result.code, (session, collection, report), known)  # noqa: PLW2901 - the same finding
            findings.append(finding)
        results.append(replace(result, findings=tuple(findings)))
    return replace(report, results=tuple(results))


def _best(
    choices: Sequence[Finding],
    code: str,
    seen: tuple[Session, Collection, Report],
    known: Mapping[type, Any],
) -> Finding:
    """Return the first choice that leaves no new error, or the one with the fewest errors after it."""
    session, collection, before = seen
    errors = _error_counts(before)
    left: list[tuple[int, Finding]] = []
    for choice in choices:
        fix = session.registry.fix(choice.fix)
        plan = plan_of(fix, code, choice, collection) if fix else None
        if plan is None or plan.refusal or not _is_edit(plan, session):
            continue
        after = _error_counts(_judged(_edited(session, plan), known)[2])
        if after[code] < errors[code] and not (after - errors):
            return choice
        left.append((after.total(), choice))
    return min(left, key=lambda pair: pair[0])[1] if left else choices[0]


def _error_counts(report: Report) -> Counter[str]:
    return Counter(result.code for result, finding in report.findings() if finding.severity == "error")


def _judged(session: Session, known: Mapping[type, Any]) -> tuple[Session, Collection, Report]:
    look = session.look(known)
    return session, look, session.check(look)


def _edited(session: Session, plan: Plan) -> Session:
    """Return a session in which the files of a plan have their new content."""
    changes = [change for change in plan.changes if isinstance(change, ReplaceFile)]
    return _with_content(session, {str(change.path): change.after for change in changes})


def _with_content(session: Session, content: Mapping[str, bytes]) -> Session:
    machine = replace(session.machine, planned={**session.machine.planned, **content})
    return replace(session, machine=machine, begun=[])


def passing(session: Session, content: Mapping[str, bytes]) -> set[str]:
    """Return the rules that find no errors if files have this content; nothing is written."""
    changed = _with_content(session, content)
    report = changed.check(changed.look())
    return {result.code for result in report.results if result.status in {"pass", "warn"}}


def _may_do(plan: Plan, *, unsafe: bool) -> bool:
    return not plan.refusal and (plan.safety == "safe" or (unsafe and plan.safety == "unsafe"))


def _is_edit(plan: Plan, session: Session) -> bool:
    """Return whether a plan edits only launch files."""
    files = {str(path) for path in session.target.files}
    return bool(plan.changes) and all(_edits(change, files) for change in plan.changes)


def _edits(change: Change, files: set[str]) -> bool:
    return isinstance(change, ReplaceFile) and str(change.path) in files


def _is_worse(before: Report, after: Report) -> bool:
    """Return whether a rule that passed before now finds errors."""
    passed = {result.code for result in before.results if result.status in {"pass", "warn"}}
    return any(result.code in passed for result in after.results if result.status == "fail")


def _presumed(session: Session, collection: Collection, report: Report, *, unsafe: bool) -> Report:
    """Return the report without the findings that a repair outside the launch files would fix."""
    results = []
    for result in report.results:
        left = tuple(
            finding
            for finding in result.findings
            if (fix := session.registry.fix(finding.fix)) is None
            or _is_edit(plan := plan_of(fix, result.code, finding, collection), session)
            or plan.variables
            or not _may_do(plan, unsafe=unsafe)
        )
        changed = len(left) < len(result.findings)
        results.append(replace(result, findings=left, status=status_of(left)) if changed else result)
    return replace(report, results=tuple(results))


def _errors(report: Report) -> tuple[str, ...]:
    found = (result.code for result, finding in report.findings() if finding.severity == "error")
    return tuple(dict.fromkeys(found))


def _facts_without_script(session: Session, collection: Collection) -> dict[type, Any]:
    """Return the facts that do not depend on the text of a launch file."""
    collectors = {collector.fact: collector for collector in session.registry.collectors}
    depends = {Launch, SourceFiles}

    def below(fact: type) -> Iterator[type]:
        yield from (
            need.fact for need in collectors[fact].needs if fact in collectors and need.fact is not Machine
        )

    while more := {
        fact for fact in collectors if fact not in depends and not depends.isdisjoint(below(fact))
    }:
        depends |= more
    depends -= {Resolution}  # after an edit it is assumed to be the same: another dry run takes minutes
    return {fact: collection.get(fact) for fact in collectors if fact not in depends and collection.has(fact)}
