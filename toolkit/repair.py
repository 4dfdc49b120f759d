"""Repairing: plan from findings, apply one fix at a time, look again, and say what became of it."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import apply
from verl_doctor.toolkit.change import Change, Fix, NewFile, Refusal, ReplaceFile, describe, safety_of
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.facts import Unknown, arguments_from
from verl_doctor.toolkit.result import Repair, Report, with_repairs
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.target import journal_home

_UNSAFE = "it cannot be undone; see it with verl-doctor fix, and add --unsafe to have it run"


@dataclass(frozen=True)
class Plan:
    """What one fix would do."""

    fix: Fix
    code: str
    changes: tuple[Change, ...]
    refusal: str = ""

    def as_repair(self, outcome: str, reason: str = "", transaction: str | None = None) -> Repair:
        """The plan and what became of it, for the report."""
        return Repair(
            fix=self.fix.id,
            code=self.code,
            title=self.fix.title,
            safety=safety_of(self.fix.safety, list(self.changes)),
            outcome=outcome,  # type: ignore[arg-type]
            reason=reason or self.refusal,
            changes=tuple(describe(change) for change in self.changes),
            diff="".join(diff_of(change) for change in self.changes),
            restart=self.fix.restart,
            transaction=transaction,
        )


def show(session: Session, collection: Collection, report: Report) -> Report:
    """Plan every repair and change nothing."""
    repairs = [
        plan.as_repair("refused" if plan.refusal else "planned")
        for plan in plans(session, collection, report)
    ]
    return with_repairs(report, repairs)


def carry_out(session: Session, report: Report, *, unsafe: bool) -> Report:
    """Apply the safe fixes (with `unsafe`: those too), each followed by a fresh look, and judge everything again.

    A fix after which a rule fails that did not fail before is taken back.
    """
    found = dict.fromkeys((finding.fix, result.code) for result, finding in report.findings())
    repairs: list[Repair] = []
    for identifier, code in found:
        fix = session.registry.fix(identifier)
        if fix is not None:
            repairs += _carry_out_one(session, fix, code, unsafe=unsafe)
    return with_repairs(session.check(session.look()), repairs)


def _carry_out_one(session: Session, fix: Fix, code: str, *, unsafe: bool) -> list[Repair]:
    if fix.safety == "unsafe" and not unsafe:
        return [Plan(fix, code, ()).as_repair("not attempted", _UNSAFE)]
    collection = session.look()
    before = session.check(collection)
    found = [plan for plan in plans(session, collection, before) if plan.fix is fix]
    return [_attempt(session, plan, before, unsafe=unsafe) for plan in found]


def exit_code(report: Report) -> int:
    """0 when all that was attempted is repaired, 1 when something still fails."""
    attempted = [repair for repair in report.repairs or () if repair.outcome != "not attempted"]
    return int(any(repair.outcome != "repaired" for repair in attempted))


def plans(session: Session, collection: Collection, report: Report) -> list[Plan]:
    """Ask the fix of each finding for its plan. Findings that the same changes would repair share one."""
    found: list[Plan] = []
    for result, finding in report.findings():
        fix = session.registry.fix(finding.fix)
        if fix is not None:
            plan = _plan(fix, result.code, finding, collection)
            if plan not in found:
                found.append(plan)
    return found


def _plan(fix: Fix, code: str, finding: Finding, collection: Collection) -> Plan:
    arguments = arguments_from(fix.needs, {need.fact: collection.get(need.fact) for need in fix.needs})
    if isinstance(arguments, Unknown):
        return Plan(fix, code, (), arguments.reason)
    try:
        changes = fix.plan(finding, **arguments)
    except Exception as error:  # noqa: BLE001 - a fix that breaks is a refusal, not the end of the run
        return Plan(fix, code, (), f"the fix broke: {type(error).__name__}: {error}")
    if isinstance(changes, Refusal):
        return Plan(fix, code, (), changes.reason)
    return Plan(fix, code, tuple(changes))


def _attempt(session: Session, plan: Plan, before: Report, *, unsafe: bool) -> Repair:
    safety = safety_of(plan.fix.safety, list(plan.changes))
    if plan.refusal:
        return plan.as_repair("refused")
    if safety == "manual":
        return plan.as_repair("not attempted", "this one is for you to run")
    if safety == "unsafe" and not unsafe:
        return plan.as_repair("not attempted", _UNSAFE)
    home = journal_home(session.target, _paths(plan.changes))
    try:
        done = apply.apply(plan.changes, home, fix=plan.fix.id, code=plan.code)
    except apply.Refused as error:
        return plan.as_repair("refused", str(error))
    after = session.check(session.look())
    identifier = done.id if done else None
    if worse := _worse(before, after):
        return _take_back(plan, home, identifier, worse)
    left = _severity_count(after, plan.code) >= _severity_count(before, plan.code)
    return plan.as_repair("still failing" if left else "repaired", "", identifier)


def _take_back(plan: Plan, home: Path, identifier: str | None, worse: str) -> Repair:
    if identifier is None:
        return plan.as_repair("still failing", f"{worse} fails now", None)
    try:
        apply.undo(home, identifier)
    except apply.Refused as error:
        return plan.as_repair(
            "still failing", f"{worse} fails now, and taking the repair back was refused: {error}", identifier
        )
    return plan.as_repair("made worse, undone", f"{worse} failed after it", identifier)


def _worse(before: Report, after: Report) -> str | None:
    """The first rule that fails or breaks now and did not before."""
    bad = {"fail", "error"}
    failing = {result.code for result in before.results if result.status in bad}
    return next((r.code for r in after.results if r.status in bad and r.code not in failing), None)


def _severity_count(report: Report, code: str) -> int:
    return sum(finding.severity != "info" for result, finding in report.findings() if result.code == code)


def _paths(changes: Iterable[Change]) -> list[Path]:
    return [change.path for change in changes if isinstance(change, (ReplaceFile, NewFile))]


def diff_of(change: Change) -> str:
    """A change as a person reads it: a unified diff for a file, a sentence for the rest."""
    match change:
        case ReplaceFile(path, before, after):
            return _unified(str(path), before, after)
        case NewFile(path, content):
            return _unified(str(path), b"", content)
    said = describe(change)
    if said["kind"] == "run_command":
        return f"$ {shlex.join(said['argv'])}\n# {said['why']}\n"
    return f"# {said['kind'].replace('_', ' ')}: {', '.join(said['roots'])}\n"


def _unified(path: str, before: bytes, after: bytes) -> str:
    old, new = (
        text.decode("utf-8", "backslashreplace").splitlines(keepends=True) for text in (before, after)
    )
    rows = difflib.unified_diff(old, new, f"a{path}" if old else "/dev/null", f"b{path}")
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)
