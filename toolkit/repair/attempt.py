"""Attempts one repair: plans it, applies it, examines again, and reverts what did not help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

from verl_doctor.toolkit.change import Change, Fix, InstallPackages, ReplaceFile, RunCommand
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import beyond
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.repair import installs, job_environment
from verl_doctor.toolkit.repair.blame import blame_of, paths_of
from verl_doctor.toolkit.repair.forecast import edit_of, passing
from verl_doctor.toolkit.repair.improvement import (
    Comparison,
    findings_of,
    has_more_errors,
    not_repaired,
    revealed,
)
from verl_doctor.toolkit.repair.job_environment import JobEnvironment
from verl_doctor.toolkit.repair.plan import Plan, plans
from verl_doctor.toolkit.repair.work import Edit, Work
from verl_doctor.toolkit.result import Outcome, Repair, Report
from verl_doctor.toolkit.rule import Cost

NO_FOLDER: Final = (
    "it needs a variable in the job's environment: --output-env DIR writes a file to source and one for Ray"
)
COSTLY: Final = frozenset({"gpu"})
_MOST_REFUSALS = 3  # of plans for one file
_MOST_TRIED = 100  # edits, after which no more are tried on top of one that did not help


def why_unsafe(fix: Fix, changes: Iterable[Change]) -> str:
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


def attempt_all(work: Work, fix: Fix, code: str) -> tuple[list[Repair], Report, Work]:
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
            results, work = _attempt(work, plan, planned, collection, before)
            tried.update(results)
            if tried[plan].outcome == "refused":
                refused.update(paths_of(plan.changes))


def _attempt(
    work: Work,
    plan: Plan,
    planned: Sequence[Plan],
    seen: Collection,
    before: Report,
    tried: frozenset[object] = frozenset(),
) -> tuple[dict[Plan, Repair], Work]:
    """Carry out a plan and judge it; what did not help is reverted.

    Return its result, and those of the plans that it made possible and that were tried with it. The edits
    that were `tried` before are not.
    """
    if plan.refusal:
        return {plan: plan.ended("refused")}, work
    if plan.safety == "manual":
        return {plan: plan.ended("not attempted", "you have to run this command yourself")}, work
    if not work.may_do(plan):
        return {plan: plan.ended("not attempted", why_unsafe(plan.fix, plan.changes))}, work
    if plan.variables and work.job is None:
        return {plan: plan.ended("not attempted", NO_FOLDER)}, work
    requested = plan
    original = work
    plan = installs.placed(plan, in_place=work.in_place)
    install = installs.of(plan)
    if install is not None:  # before and after, with all possible trials
        work, seen, before = replace(work, session=work.session.at_cost("live"), seen=None).examined()
    try:
        plan, job = with_variables(work, plan, planned, seen)
        changes = [*plan.on_disk, *(job.changes() if job is not None and plan.variables else ())]
        home = work.home(changes)
        notes_of_plan = work.notes(plan)  # before the links are removed
        if install is not None:
            notes_of_plan = (*notes_of_plan, *installs.words(work.session, install))
        blame = blame_of(work.session, plan, paths_of(changes))
        done = work.apply(changes, plan.fix.id, plan.code)
    except apply.Refused as error:
        return {requested: plan.ended("refused", str(error))}, original
    work = work.using(install)
    after, collection, report = replace(work, job=job, seen=None).examined(
        _costly_facts(work.session, plan, seen)
    )
    work = work.named(home, done)
    name = work.name if done else None
    edited = tuple(change for change in changes if isinstance(change, ReplaceFile))
    is_edit = done is not None and len(edited) == len(changes)
    undoable = done.id if done else None
    edits = (
        (*work.edits, Edit(plan, edited, home, done.id, before, notes_of_plan))
        if done and is_edit
        else work.edits
    )
    after = replace(after, name=work.name, edits=edits)
    why = not_repaired(plan, before, report)
    look = Comparison(work.session, blame, seen, collection, work.unsafe)
    new_errors = look.unrepaired_errors(collection, report) - look.unrepaired_errors(seen, before)
    if why and not has_more_errors(plan, before, report):
        del new_errors[plan.code]
    if is_edit and new_errors and _are_scripts(work, edited):
        # What fails with the old text too has another cause, such as a file that another program has damaged
        # meanwhile.
        caused = passing(work.session, {str(change.path): change.before for change in edited})
        new_errors = Counter(
            {code: count for code, count in new_errors.items() if code in {plan.code, *caused}}
        )
    if worse := look.worse(before, report, new_errors):
        beneath = revealed(plan, before, report, new_errors)
        outcome: Outcome = "still failing" if beneath else "made worse, undone"
        result = _undone(plan, home, undoable, beneath or worse, name, outcome)
        return {requested: result}, _without(original.named(home, done), plan)
    if not why:
        return {requested: plan.ended("repaired", "", name, notes_of_plan)}, after
    if is_edit and not plan.variables:
        return _with_later_edits(original, after, tried.union(map(edit_of, planned)))
    result = _undone(plan, home, undoable, why, name)
    if install is not None:
        return {requested: result}, replace(original, seen=None)
    return {requested: result}, _without(work, plan)


def _with_later_edits(
    original: Work, work: Work, tried: frozenset[object]
) -> tuple[dict[Plan, Repair], Work]:
    """Try the repairs of the same files that the last edit made possible, since it did not help by itself.

    All of them are kept if the rule of that edit reports less in the end, and reverted otherwise.
    """
    edit = work.edits[-1]
    paths = set(paths_of(edit.changes))
    later: dict[Plan, Repair] = {}
    while True:
        work, collection, report = work.examined()
        if not (why := not_repaired(edit.plan, edit.before, report)):
            return {edit.plan: edit.plan.ended("repaired", "", work.name, edit.notes), **later}, work
        now = plans(work.session, collection, report)
        plan = next(
            (plan for plan in now if edit_of(plan) not in tried and _is_edit(work, plan, paths)), None
        )
        if plan is None or len(tried) > _MOST_TRIED:
            results, work = _reverted(original, work, why)
            return {**later, **results}, work
        tried |= {edit_of(plan)}
        results, work = _attempt(work, plan, now, collection, report, tried)
        later |= results


def _are_scripts(work: Work, edited: Iterable[ReplaceFile]) -> bool:
    """Return whether all edited files are among those that the user named."""
    return {str(change.path) for change in edited} <= set(map(str, work.session.target.files))


def _is_edit(work: Work, plan: Plan, paths: Container[str]) -> bool:
    """Return whether a plan edits files alone, one of these among them, and is allowed."""
    edits = [change for change in plan.changes if isinstance(change, ReplaceFile)]
    return (
        work.may_do(plan)
        and len(edits) == len(plan.changes)
        and any(str(change.path) in paths for change in edits)
    )


def _reverted(original: Work, work: Work, why: str) -> tuple[dict[Plan, Repair], Work]:
    """Revert the edits that were made since `original`, the last first, and return their results.

    `why` the first did not help; the others were made on top of it. Those that cannot be reverted stand.
    """
    results: dict[Plan, Repair] = {}
    first = work.edits[len(original.edits)].plan
    for edit in reversed(work.edits[len(original.edits) :]):
        reason = why if edit.plan == first else f"it needs the repair of {first.code}, which did not help"
        result = _undone(edit.plan, edit.home, edit.transaction, reason, work.name)
        if result.transaction is not None:  # nor can those below it
            standing = (edit.plan for edit in work.edits[len(original.edits) :])
            results |= {plan: plan.ended("still failing", result.reason, work.name) for plan in standing}
            return results, replace(work, seen=None)
        work = replace(work, edits=work.edits[:-1])
        results[edit.plan] = result
    return dict(reversed(results.items())), replace(original, name=work.name, seen=None)


def _costly_facts(session: Session, plan: Plan, seen: Collection) -> dict[type, Any]:
    """Return the costly facts that need no new collection: those that this plan's rule does not read.

    They are collected again at the end.
    """
    checks, collectors = session.registry.checks, session.registry.collectors
    own = beyond([check for check in checks if check.code == plan.code], collectors, frozenset())
    costly = beyond(checks, collectors, frozenset(get_args(Cost)) - COSTLY)
    return {fact: seen.get(fact) for fact in costly - own if seen.has(fact)}


def with_variables(
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


def _undone(
    plan: Plan,
    home: Path,
    done: str | None,
    why: str,
    name: str | None,
    outcome: Outcome = "still failing",
) -> Repair:
    """Undo changes that did not help, or made something worse, and return the plan with its result.

    Its transaction is named only if the changes are still in place.
    """
    if done is None:
        return plan.ended("still failing", why)
    if not all(change.undoable for change in plan.changes):
        return plan.ended("still failing", f"{why}, and the command that was run cannot be undone", name)
    try:
        apply.undo(home, done)
    except apply.Refused as error:
        return plan.ended("still failing", f"{why}, and undoing it was refused: {error}", name)
    if outcome == "made worse, undone":
        return plan.ended(outcome, why)
    if plan.variables:
        what = "the variables were removed"
    elif any(isinstance(change, InstallPackages) for change in plan.changes):
        what = "the installation was undone"
    else:
        what = "the change was undone"
    return plan.ended(outcome, f"{why}, so {what}")
