"""Repairing: plan from findings, apply one fix at a time, look again, and say what became of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import apply
from verl_doctor.toolkit.change import (
    Change,
    Fix,
    NewFile,
    NewLink,
    Refusal,
    ReplaceFile,
    Safety,
    SetVariable,
    describe,
    safety_of,
)
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.difference import unified
from verl_doctor.toolkit.facts import Unknown, arguments_from
from verl_doctor.toolkit.result import CheckResult, Outcome, Repair, Report, with_repairs
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.target import journal_home

_UNSAFE = "it cannot be undone, or changes what the job does; see it with verl-doctor fix, and add --unsafe to have it done"


@dataclass(frozen=True)
class Plan:
    """What one fix would do about the findings of one rule that the same changes repair."""

    fix: Fix
    code: str
    changes: tuple[Change, ...] = ()
    refusal: str = ""

    @property
    def safety(self) -> Safety:
        """What is declared, unless a change is unsafe by type."""
        return safety_of(self.fix.safety, list(self.changes))

    def ended(self, outcome: Outcome, reason: str = "", transaction: str | None = None) -> Repair:
        """The plan and what became of it, for the report."""
        return Repair(
            fix=self.fix.id,
            code=self.code,
            title=self.fix.title,
            safety=self.safety,
            outcome=outcome,
            reason=reason or self.refusal,
            changes=tuple(describe(change) for change in self.changes),
            diff="".join(diff_of(change) for change in self.changes),
            restart=self.fix.restart,
            transaction=transaction,
        )


def show(session: Session, collection: Collection, report: Report) -> Report:
    """Plan every repair and change nothing."""
    planned = plans(session, collection, report)
    repairs = [plan.ended("refused" if plan.refusal else "planned") for plan in planned]
    return with_repairs(report, repairs, applied=False)


def carry_out(session: Session, report: Report, *, unsafe: bool) -> Report:
    """Apply the safe fixes (with `unsafe`: those too), each followed by a fresh look, and judge everything again.

    A fix after which something fails that did not fail before is taken back, unless a safe fix is known for that too:
    one break hides the next. What comes to light so is repaired in turn.
    """
    repairs: list[Repair] = []
    done: set[tuple[Fix, str]] = set()
    while waiting := [pair for pair in _wanted(session, report) if pair not in done]:
        fix, code = waiting[0]
        done.add((fix, code))
        if fix.safety == "unsafe" and not unsafe:
            repairs.append(Plan(fix, code).ended("not attempted", _UNSAFE))
        else:
            attempted, report = _attempt_all(session, fix, code, unsafe=unsafe)
            repairs += attempted
    return with_repairs(session.check(session.look()), repairs, applied=True)


def _wanted(session: Session, report: Report) -> Iterable[tuple[Fix, str]]:
    """The fixes that findings ask for, with the rules that found them, each once."""
    return dict.fromkeys((fix, result.code) for result, _, fix in _fixable(session, report))


def exit_code(report: Report) -> int:
    """0 when all that was attempted is repaired, 1 when something still fails."""
    attempted = [repair for repair in report.repairs or () if repair.outcome != "not attempted"]
    return int(any(repair.outcome != "repaired" for repair in attempted))


def plans(session: Session, collection: Collection, report: Report) -> list[Plan]:
    """Ask the fix of each finding for its plan. Findings that the same changes would repair share one."""
    found = (
        _plan(fix, result.code, finding, collection) for result, finding, fix in _fixable(session, report)
    )
    return list(dict.fromkeys(found))


def _fixable(session: Session, report: Report) -> Iterator[tuple[CheckResult, Finding, Fix]]:
    """The findings that a fix is for. A hint is repaired only when its rule was asked for by name."""
    for result, finding in report.findings():
        fix = session.registry.fix(finding.fix)
        if fix is not None and (finding.severity != "info" or session.selection.select):
            yield result, finding, fix


def _plan(fix: Fix, code: str, finding: Finding, collection: Collection) -> Plan:
    arguments = arguments_from(fix.needs, {need.fact: collection.get(need.fact) for need in fix.needs})
    if isinstance(arguments, Unknown):
        return Plan(fix, code, refusal=arguments.reason)
    try:
        changes = fix.plan(finding, **arguments)
        return (
            Plan(fix, code, refusal=changes.reason)
            if isinstance(changes, Refusal)
            else Plan(fix, code, tuple(changes))
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a fix that breaks is a refusal, not the end of the run
        return Plan(fix, code, refusal=f"the fix broke: {type(error).__name__}: {error}")


def _attempt_all(session: Session, fix: Fix, code: str, *, unsafe: bool) -> tuple[list[Repair], Report]:
    """Plan, apply and look again until this fix has nothing new to do about this rule; the last report besides."""
    tried: dict[Plan, Repair] = {}
    while True:
        collection = session.look()
        before = session.check(collection)
        planned = [
            plan for plan in plans(session, collection, before) if plan.fix is fix and plan.code == code
        ]
        waiting = [plan for plan in planned if plan not in tried]
        if not waiting:
            return list(tried.values()), before
        tried[waiting[0]] = _attempt(session, waiting[0], collection, before, unsafe=unsafe)


def _attempt(session: Session, plan: Plan, seen: Collection, before: Report, *, unsafe: bool) -> Repair:
    if plan.refusal:
        return plan.ended("refused")
    if plan.safety == "manual":
        return plan.ended("not attempted", "this one is for you to run")
    if plan.safety == "unsafe" and not unsafe:
        return plan.ended("not attempted", _UNSAFE)
    home = journal_home(session.target, _paths(plan.changes))
    helpless = _helpless(session, seen, before)
    try:
        done = apply.apply(plan.changes, home, fix=plan.fix.id, code=plan.code)
    except apply.Refused as error:
        return plan.ended("refused", str(error))
    collection = session.look()
    after = session.check(collection)
    name = f"{home}/{done.id}" if done else None
    if worse := _worse(before, after, _helpless(session, collection, after) - helpless):
        return _take_back(plan, home, done.id if done else None, worse)
    if why := _not_repaired(plan, before, after):
        return plan.ended("still failing", why, name)
    return plan.ended("repaired", "", name)


def _not_repaired(plan: Plan, before: Report, after: Report) -> str:
    """Why the repair is not proven, or nothing: the rule must have run, and complain less than it did."""
    result = next(result for result in after.results if result.code == plan.code)
    if result.status not in {"pass", "warn", "fail"}:
        return f"{plan.code} could not be judged afterwards: {result.reason}"
    if _complaints(after, plan) >= _complaints(before, plan):
        return f"{plan.code} says the same as before"
    return ""


def _complaints(report: Report, plan: Plan) -> int:
    return sum(
        result.code == plan.code and finding.fix == plan.fix.id for result, finding in report.findings()
    )


def _take_back(plan: Plan, home: Path, identifier: str | None, worse: str) -> Repair:
    if identifier is None:
        return plan.ended("still failing", worse)
    name = f"{home}/{identifier}"
    if not all(change.undoable for change in plan.changes):
        return plan.ended("still failing", f"{worse}, and what was run cannot be undone", name)
    try:
        apply.undo(home, identifier)
    except apply.Refused as error:
        return plan.ended("still failing", f"{worse}, and taking the repair back was refused: {error}", name)
    return plan.ended("made worse, undone", worse, name)


def _worse(before: Report, after: Report, new_errors: Counter[str]) -> str:
    """What fails or breaks now that did not before, or nothing."""
    was = {result.code: result.status for result in before.results}
    for code in new_errors:
        if was.get(code) not in {"error", "skipped"}:
            return f"{code} found more errors after it"
    broken = (
        r
        for r in after.results
        if r.status in {"error", "skipped"} and was.get(r.code) not in {"error", "skipped"}
    )
    return next((f"{result.code} could not be judged after it: {result.reason}" for result in broken), "")


def _helpless(session: Session, collection: Collection, report: Report) -> Counter[str]:
    """How many errors each rule found that no safe fix has a plan for."""
    return Counter(
        result.code
        for result, finding in report.findings()
        if finding.severity == "error" and not _has_remedy(session, collection, result.code, finding)
    )


def _has_remedy(session: Session, collection: Collection, code: str, finding: Finding) -> bool:
    fix = session.registry.fix(finding.fix)
    if fix is None:
        return False
    plan = _plan(fix, code, finding, collection)
    return not plan.refusal and plan.safety == "safe"


def _paths(changes: Iterable[Change]) -> list[Path]:
    return [change.path for change in changes if isinstance(change, (ReplaceFile, NewFile))]


def diff_of(change: Change) -> str:
    """A change as a person reads it: a unified diff for a file, a sentence for the rest."""
    match change:
        case ReplaceFile(path, before, after):
            return "".join(unified(before, after, (f"a{path}", f"b{path}")))
        case NewFile(path, content):
            return "".join(unified(b"", content, ("/dev/null", f"b{path}")))
        case NewLink(path, target):
            return f"$ ln -s {shlex.quote(str(target))} {shlex.quote(str(path))}\n"
        case SetVariable(name, value, why):
            line = f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            return f"{line}\n# {why}\n"
    said = describe(change)
    if said["kind"] == "run_command":
        return f"$ {shlex.join(said['argv'])}\n# {said['why']}\n"
    return f"# {said['kind'].replace('_', ' ')}: {', '.join(said['roots'])}\n"
