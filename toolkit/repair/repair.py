"""Repairs: makes plans from findings, applies one fix at a time, examines again, and reports the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from verl_doctor.toolkit.change import Change, Fix, InstallPackages, ReplaceFile, RunCommand
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.changes.apply import Transaction
from verl_doctor.toolkit.changes.journal import new_run
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import beyond
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.repair import installs, job_environment
from verl_doctor.toolkit.repair.blame import blame_of, paths_of
from verl_doctor.toolkit.repair.forecast import foresee, passing, with_best_fixes
from verl_doctor.toolkit.repair.improvement import Comparison, findings_of, has_more_errors, not_repaired
from verl_doctor.toolkit.repair.job_environment import JobEnvironment
from verl_doctor.toolkit.repair.plan import Plan, fixable, plan_of, plans
from verl_doctor.toolkit.repair.work import Edit, Work
from verl_doctor.toolkit.result import Repair, Report, with_repairs
from verl_doctor.toolkit.rule import Cost
from verl_doctor.toolkit.target import journal_homes

NO_FOLDER = (
    "it needs a variable in the job's environment: --output-env DIR writes a file to source and one for Ray"
)
_MOST_REFUSALS = 3  # of plans for one file
_COSTLY = frozenset({"gpu"})
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


def _why_unsafe(fix: Fix, changes: Iterable[Change]) -> str:
    """Return why a repair needs --unsafe.

    Its declaration decides where only a package installer could list the changes.
    """
    kinds = {type(change) for change in changes}
    if InstallPackages in kinds or any(need.fact is Resolution for need in fix.needs):
        why = "it installs packages"
    elif RunCommand in kinds:
        why = "it cannot be undone"
    else:
        why = "it changes what the job does"
    return f"{why}; review it with verl-doctor fix, then add --unsafe to apply it"


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
        plan, job = _with_variables(work, plan, planned, seen)
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
            why = _why_unsafe(fix, _changes_of(fix, code, seen, report, session))
            repairs.append(Plan(fix, code).ended("not attempted", why))
        else:
            attempted, report, work = _attempt_all(work, fix, code)
            # What was refused may be possible after a repair.
            if any(repair.outcome == "repaired" for repair in attempted):
                refused = {(repair.fix, repair.code) for repair in repairs if repair.outcome == "refused"}
                repairs = [repair for repair in repairs if repair.outcome != "refused"]
                done = {(fix, code) for fix, code in done if (fix.id, code) not in refused}
            repairs += attempted
    repairs, work = _without_new_failures(repairs, work, first)
    repairs += _settle(work)
    if repairs and session.selection.costs & _COSTLY:
        work = replace(work, seen=None)
    work, collection, report = work.examined()
    files = work.job.settled().as_planned(collection, applied=True) if work.job else None
    return with_repairs(report, repairs, applied=True, environment=files)


def _without_new_failures(repairs: list[Repair], work: Work, first: Report) -> tuple[list[Repair], Work]:
    """Undo edits, the last first, while a rule finds errors because of them and passed before the first.

    Each of a chain of repairs may only reveal the fault that the next one repairs; where the last cannot be
    repaired, the job is left as it was.
    """
    passed = {result.code for result in first.results if result.status in {"pass", "warn"}}
    while work.edits:
        work, _, report = work.examined()
        failing = {result.code for result in report.results if result.status == "fail"} & passed
        if failing:
            original = {
                str(change.path): change.before for edit in reversed(work.edits) for change in edit.changes
            }
            failing &= passing(work.session, original)
        if not failing:
            break
        edit = work.edits[-1]
        try:
            apply.undo(edit.home, edit.transaction)
        except apply.Refused:
            break
        work = replace(work, edits=work.edits[:-1], seen=None)
        of_edit = [
            number
            for number, repair in enumerate(repairs)
            if (repair.fix, repair.code) == (edit.plan.fix.id, edit.plan.code)
        ]
        name = repairs[of_edit[-1]].transaction
        repairs[of_edit[-1]] = edit.plan.ended(
            "made worse, undone", f"{min(failing)} found more errors after it", name
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


def _attempt_all(work: Work, fix: Fix, code: str) -> tuple[list[Repair], Report, Work]:
    """Plan, apply and examine until this fix has nothing new to do for this rule.

    Also return the last report.

    A refusal after all errors of the rule were repaired is not a failure: it is listed as not attempted. A
    file that another process keeps changing has a new plan each time; it is given up after a few attempts.
    """
    tried: dict[Plan, Repair] = {}
    refused: Counter[str] = Counter()
    while True:
        work, collection, before = work.examined()
        planned = plans(work.session, collection, before)
        waiting = [
            plan
            for plan in planned
            if plan.fix is fix
            and plan.code == code
            and plan not in tried
            and not any(refused[path] >= _MOST_REFUSALS for path in paths_of(plan.changes))
        ]
        if not waiting:
            return list(tried.values()), before, work
        plan = waiting[0]
        repaired = any(repair.outcome == "repaired" for repair in tried.values())
        if (
            plan.refusal
            and repaired
            and not any(finding.severity == "error" for finding in findings_of(before, plan))
        ):
            tried[plan] = plan.ended("not attempted", plan.refusal)
        else:
            tried[plan], work = _attempt(work, plan, planned, collection, before)
            if tried[plan].outcome == "refused":
                refused.update(paths_of(plan.changes))


def _attempt(
    work: Work, plan: Plan, planned: Sequence[Plan], seen: Collection, before: Report
) -> tuple[Repair, Work]:
    if plan.refusal:
        return plan.ended("refused"), work
    if plan.safety == "manual":
        return plan.ended("not attempted", "you have to run this command yourself"), work
    if not work.may_do(plan):
        return plan.ended("not attempted", _why_unsafe(plan.fix, plan.changes)), work
    if plan.variables and work.job is None:
        return plan.ended("not attempted", NO_FOLDER), work
    original = work
    plan = installs.placed(plan, in_place=work.in_place)
    install = installs.of(plan)
    if install is not None:  # before and after, with all possible trials
        work, seen, before = replace(work, session=work.session.at_cost("live"), seen=None).examined()
    try:
        plan, job = _with_variables(work, plan, planned, seen)
        changes = [*plan.on_disk, *(job.changes() if job is not None and plan.variables else ())]
        home = work.home(changes)
        notes_of_plan = work.notes(plan)  # before the links are removed
        if install is not None:
            notes_of_plan = (*notes_of_plan, *installs.words(work.session, install))
        blame = blame_of(work.session, plan, paths_of(changes))
        done = work.apply(changes, plan.fix.id, plan.code)
    except apply.Refused as error:
        return plan.ended("refused", str(error)), original
    work = work.using(install)
    after, collection, report = replace(work, job=job, seen=None).examined(
        _costly_facts(work.session, plan, seen)
    )
    work = work.named(home, done)
    name = work.name if done else None
    edited = tuple(change for change in changes if isinstance(change, ReplaceFile))
    is_edit = done is not None and len(edited) == len(changes)
    edits = (*work.edits, Edit(plan, edited, home, done.id)) if done and is_edit else work.edits
    after = replace(after, name=work.name, edits=edits)
    why = not_repaired(plan, before, report)
    look = Comparison(work.session, blame, seen, collection, work.unsafe)
    new_errors = look.unrepaired_errors(collection, report) - look.unrepaired_errors(seen, before)
    if why and plan.variables and not has_more_errors(plan, before, report):
        del new_errors[plan.code]
    if (
        is_edit
        and new_errors
        and {str(change.path) for change in edited} <= set(map(str, work.session.target.files))
    ):
        # What fails with the old text too has another cause, such as a file that another program has damaged
        # meanwhile.
        caused = passing(work.session, {str(change.path): change.before for change in edited})
        new_errors = Counter(
            {code: count for code, count in new_errors.items() if code in {plan.code, *caused}}
        )
    if worse := look.worse(before, report, new_errors):
        return _undo(plan, home, done, worse, name), _without(original.named(home, done), plan)
    if why and install is not None:
        return _undo_useless(plan, home, done, why, name), replace(original, seen=None)
    if why and plan.variables:
        return _undo_useless(plan, home, done, why, name), _without(work, plan)
    return plan.ended("still failing" if why else "repaired", why, name, notes_of_plan), after


def _costly_facts(session: Session, plan: Plan, seen: Collection) -> dict[type, Any]:
    """Return the costly facts that need no new collection: those that this plan's rule does not read.

    They are collected again at the end.
    """
    checks, collectors = session.registry.checks, session.registry.collectors
    own = beyond([check for check in checks if check.code == plan.code], collectors, frozenset())
    costly = beyond(checks, collectors, frozenset(get_args(Cost)) - _COSTLY)
    return {fact: seen.get(fact) for fact in costly - own if seen.has(fact)}


def _with_variables(
    work: Work, plan: Plan, planned: Sequence[Plan], seen: Collection
) -> tuple[Plan, JobEnvironment | None]:
    """Return the plan with its useful variables, and the job's environment with them. Raises Refused."""
    if work.job is None or not plan.variables:
        return plan, work.job
    others = [other for other in planned if other is not plan and work.may_do(other)]
    return job_environment.with_variables(work.job, plan, others, seen)


def _without(work: Work, plan: Plan) -> Work:
    """Return the work without a plan that did not help."""
    job = work.job and work.job.giving_up(variable.name for variable in plan.variables)
    return replace(work, job=job, seen=None)


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


def _undo(plan: Plan, home: Path, done: Transaction | None, worse: str, name: str | None) -> Repair:
    if done is None:
        return plan.ended("still failing", worse)
    if not all(change.undoable for change in plan.changes):
        return plan.ended("still failing", f"{worse}, and the command that was run cannot be undone", name)
    try:
        apply.undo(home, done.id)
    except apply.Refused as error:
        return plan.ended("still failing", f"{worse}, and undoing it was refused: {error}", name)
    return plan.ended("made worse, undone", worse, name)


def _undo_useless(plan: Plan, home: Path, done: Transaction | None, why: str, name: str | None) -> Repair:
    """Undo variables and packages that did not help."""
    if done is not None:
        try:
            apply.undo(home, done.id)
        except apply.Refused as error:
            return plan.ended("still failing", f"{why}, and undoing it was refused: {error}", name)
    what = "variables were removed" if plan.variables else "installation was undone"
    return plan.ended("still failing", f"{why}, so the {what}")
