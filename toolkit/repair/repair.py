"""Repairs: makes plans from findings, applies one fix at a time, examines again, and reports the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.change import Change, Fix
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.changes.records import new_run
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.repair import installs
from verl_doctor.toolkit.repair.attempt import COSTLY, NO_FOLDER, attempt_all, why_unsafe, with_variables
from verl_doctor.toolkit.repair.forecast import foresee, passing, with_best_fixes
from verl_doctor.toolkit.repair.improvement import not_repaired, revealed
from verl_doctor.toolkit.repair.job_environment import JobEnvironment
from verl_doctor.toolkit.repair.plan import Plan, fixable, plan_of, plans
from verl_doctor.toolkit.repair.work import Work
from verl_doctor.toolkit.result import Repair, Report, with_repairs
from verl_doctor.toolkit.target import journal_homes

_SETTLED = "environment-files"
_LATER = "it becomes necessary after the repairs above"


def show(
    session: Session,
    collection: Collection,
    report: Report,
    job: JobEnvironment | None = None,
    *,
    through_links: bool = False,
    in_place: bool = False,
) -> Report:
    """Plan every repair without changing anything.

    With `job`, also plan the files of the job's environment.
    """
    report = with_best_fixes(session, collection, report)
    work = Work(
        session,
        unsafe=False,
        job=job and job.judged(report),
        through_links=through_links,
        in_place=in_place,
    )
    planned = plans(session, collection, report)
    repairs: list[Repair] = []
    for plan in planned:
        ended, work = _shown(work, plan, planned, collection)
        repairs.append(installs.shown_once(ended, repairs))
    files = work.job.settled().as_planned(collection, applied=False) if work.job else None
    if not session.target.files or session.facts_file is not None:
        return with_repairs(report, repairs, applied=False, environment=files)
    foreseen = foresee(session, collection, report)
    repairs += [plan.ended("planned", "; ".join(filter(None, (_LATER, plan.why)))) for plan in foreseen.plans]
    shown = with_repairs(report, repairs, applied=False, environment=files)
    return replace(shown, forecasts=foreseen.forecasts)


def _changes_of(fix: Fix, code: str, seen: Collection, report: Report, session: Session) -> Iterator[Change]:
    """Yield what a fix would change for this rule, unless finding that out takes minutes."""
    if not fix.last_resort:
        for result, finding, other in fixable(session, report):
            if other is fix and result.code == code:
                yield from plan_of(fix, code, finding, seen).changes


def _shown(work: Work, plan: Plan, planned: Sequence[Plan], seen: Collection) -> tuple[Repair, Work]:
    if plan.refusal:
        return plan.ended("refused"), work
    if installs.of(plan) is not None:
        plan = installs.placed(plan, in_place=work.in_place)
        try:
            apply.demand_possible(plan.on_disk)
        except apply.Refused as error:
            return plan.ended("refused", str(error)), work
    if plan.variables and work.job is None:
        return plan.ended("planned", NO_FOLDER, notes=work.notes(plan)), work
    if not plan.variables or not work.may_do(plan):
        return plan.ended("planned", notes=work.notes(plan)), work
    try:
        plan, job = with_variables(work, plan, planned, seen)
    except apply.Refused as error:
        return plan.ended("refused", str(error)), work
    return plan.ended("planned", notes=work.notes(plan)), replace(work, job=job)


def carry_out(
    session: Session,
    collection: Collection,
    report: Report,
    *,
    unsafe: bool,
    job: JobEnvironment | None = None,
    through_links: bool = False,
    in_place: bool = False,
) -> Report:
    """Apply the safe fixes, and the `unsafe` ones if requested, each followed by a new examination.

    A fix is undone if it causes a new failure, unless that failure has an applicable fix of its own: one
    fault may hide the next, and newly revealed faults are repaired in turn. GPU trials are repeated only
    after a repair for their own rule, and at the end. With `job`, variables are written to its files, and
    each examination has the environment of a job that is started after sourcing them. Everything is one run,
    which one `undo` reverts. A link out of the environment becomes a private copy unless the changes go
    `through_links`. Packages are installed into a copy of the environment, which is examined from then on, or
    `in_place`.
    """
    report = first = with_best_fixes(session, collection, report)
    run = new_run(journal_homes(session.target), session.target.prefix)
    work = Work(
        session,
        unsafe,
        job and job.judged(report),
        (collection, report),
        run,
        through_links=through_links,
        in_place=in_place,
    )
    if work.job is not None and work.job.kept:
        work = replace(work, seen=None)
    repairs: list[Repair] = []
    done: set[tuple[Fix, str]] = set()
    while waiting := [pair for pair in _fixes_of(session, report) if pair not in done]:
        fix, code = waiting[0]
        done.add((fix, code))
        if fix.safety == "unsafe" and not unsafe:
            work, seen, report = work.examined()
            why = why_unsafe(fix, _changes_of(fix, code, seen, report, session))
            repairs.append(Plan(fix, code).ended("not attempted", why))
        else:
            attempted, report, work = attempt_all(work, fix, code)
            # What was refused may be possible after a repair.
            if any(repair.outcome == "repaired" for repair in attempted):
                refused = {(repair.fix, repair.code) for repair in repairs if repair.outcome == "refused"}
                repairs = [repair for repair in repairs if repair.outcome != "refused"]
                done = {(fix, code) for fix, code in done if (fix.id, code) not in refused}
            repairs += attempted
    repairs, work = _without_new_failures(repairs, work, first)
    repairs += _settle(work)
    if repairs and session.selection.costs & COSTLY:
        work = replace(work, seen=None)
    work, collection, report = work.examined()
    files = work.job.settled().as_planned(collection, applied=True) if work.job else None
    return with_repairs(report, repairs, applied=True, environment=files)


def _without_new_failures(repairs: list[Repair], work: Work, first: Report) -> tuple[list[Repair], Work]:
    """Undo edits, the last first, while a rule finds errors because of them and passed before the first.

    Each of a chain of repairs may only reveal the fault that the next one repairs; where the last cannot be
    repaired, the job is left as it was: an edit that helps only together with one that was undone goes too.
    """
    passed = {result.code for result in first.results if result.status in {"pass", "warn"}}
    some_undone = False
    while work.edits:
        work, _, report = work.examined()
        failing = {result.code for result in report.results if result.status == "fail"} & passed
        if failing:
            original = {
                str(change.path): change.before for edit in reversed(work.edits) for change in edit.changes
            }
            failing &= passing(work.session, original)
        edit = work.edits[-1]
        useless = not_repaired(edit.plan, edit.before, report) if some_undone else ""
        if not failing and not useless:
            break
        try:
            apply.undo(edit.home, edit.transaction)
        except apply.Refused:
            break
        some_undone = True
        work = replace(work, edits=work.edits[:-1], seen=None)
        of_edit = [
            number
            for number, repair in enumerate(repairs)
            if (repair.fix, repair.code) == (edit.plan.fix.id, edit.plan.code)
        ]
        why = revealed(edit.plan, edit.before, report, failing) or useless
        repairs[of_edit[-1]] = (
            edit.plan.ended("still failing", f"{why}, so the change was undone")
            if why
            else edit.plan.ended("made worse, undone", f"{min(failing)} found more errors after it")
        )
    return repairs, work


def _fixes_of(session: Session, report: Report) -> Iterable[tuple[Fix, str]]:
    """Return the fixes of all findings with the codes of their rules, without duplicates."""
    return dict.fromkeys((fix, result.code) for result, _, fix in fixable(session, report))


def exit_code(report: Report) -> ExitCode:
    """Return 0 if everything attempted is repaired and no error is left, 1 if not.

    Return 3 if it is unknown whether errors are left.
    """
    attempted = [repair for repair in report.repairs or () if repair.outcome != "not attempted"]
    if report.verdict == "failures" or any(repair.outcome != "repaired" for repair in attempted):
        return ExitCode.FAILED
    return ExitCode.COULD_NOT_CHECK if report.verdict == "could_not_check" else ExitCode.OK


def _settle(work: Work) -> list[Repair]:
    """Remove from the files what no rule needs any more and what did not help."""
    if work.job is None:
        return []
    job = work.job.settled()
    left = {entry.name for entry in job.entries}
    gone = [entry for entry in job.files.entries() if entry.name not in left]
    if not gone:
        return []
    code = gone[0].reasons[0].code
    changes = job.changes()
    home = work.home(changes)
    repair = Repair(_SETTLED, code, "Remove variables that are no longer needed", "safe", "repaired")
    try:
        done = work.apply(changes, _SETTLED, code)
    except apply.Refused as error:
        return [replace(repair, outcome="refused", reason=str(error))]
    name = (work.name or f"{home}/{done.id}") if done else None
    why = "; ".join(f"{entry.name} was set for {' and '.join(map(str, entry.reasons))}" for entry in gone)
    return [replace(repair, reason=why, transaction=name)]
