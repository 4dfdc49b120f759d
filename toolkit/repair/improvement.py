"""Whether a repair helped: the results before and after it, and what it is responsible for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.change import ReplaceFile
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.repair.blame import Blame
from verl_doctor.toolkit.repair.plan import Plan, plan_of
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Finding

_NOT_JUDGED = frozenset({"error", "skipped"})


@dataclass(frozen=True)
class Comparison:
    """The results before and after a repair, and what it is responsible for."""

    session: Session
    blame: Blame
    before: Collection
    after: Collection
    unsafe: bool = False

    def unrepaired_errors(self, collection: Collection, report: Report) -> Counter[str]:
        """Count by rule the errors that this repair is responsible for and no fix of this run can repair."""
        return Counter(
            result.code
            for result, finding in report.findings()
            if finding.severity == "error"
            and self._is_responsible(result.code, finding)
            and not _has_remedy(self.session, collection, result.code, finding, unsafe=self.unsafe)
        )

    def worse(self, before: Report, after: Report, new_errors: Counter[str]) -> str:
        """Return what newly fails because of this repair, "" if nothing does."""
        was = {result.code: result.status for result in before.results}
        for code in new_errors:
            if was.get(code) not in _NOT_JUDGED:
                return f"{code} found more errors after it"
        for result in after.results:
            # If a rule did not apply before and now lacks a fact, no judgement was lost.
            silent = {*_NOT_JUDGED, "not_applicable"} if result.status == "skipped" else _NOT_JUDGED
            # What follows from another rule is that rule's: its errors are counted above, unless a fix of
            # this run repairs them.
            newly = (
                result.status in _NOT_JUDGED
                and result.follows_from is None
                and was.get(result.code) not in silent
            )
            check = self.session.registry.check(result.code)
            if newly and check is not None and self.blame.may_concern(check, self.before, self.after):
                return f"{result.code} could not check after it: {result.reason}"
        return ""

    def _is_responsible(self, code: str, finding: Finding) -> bool:
        check = self.session.registry.check(code)
        return check is None or self.blame.is_responsible(check, finding, self.before, self.after)


def not_repaired(plan: Plan, before: Report, after: Report) -> str:
    """Return why the repair is not proven, "" if it is: the rule must have run and report less than before.

    A finding that only lost its fix still counts. After an edit, a rule may no longer apply.
    """
    result = next(result for result in after.results if result.code == plan.code)
    if result.status == "not_applicable" and all(isinstance(change, ReplaceFile) for change in plan.changes):
        return ""
    if result.status not in {"pass", "warn", "fail"}:
        return f"{plan.code} could not check afterwards: {result.reason}"
    places = {_place(finding) for finding in findings_of(before, plan) if finding.fix == plan.fix.id}
    if _complaints(after, plan, places) < _complaints(before, plan, places):
        return ""
    known = {finding.message for finding in findings_of(before, plan)}
    new = [finding.message for finding in findings_of(after, plan) if finding.message not in known]
    return (
        f'after it, {plan.code} reports "{new[0]}"' if new else f"{plan.code} still reports the same findings"
    )


def revealed(plan: Plan, before: Report, after: Report, codes: Container[str]) -> str:
    """Return which error of these rules a corrected name only reveals: its value was wrong before too.

    "" for none.
    """
    names = {
        _key(rewrite.new)
        for finding in findings_of(before, plan)
        if finding.fix == plan.fix.id and finding.correction is not None
        for rewrite in finding.correction.rewrites
        if rewrite.new and rewrite.old and _key(rewrite.new) != _key(rewrite.old)
    }
    for result, finding in after.findings():
        about = finding.subject
        is_new = result.code in codes and finding.severity == "error"
        if is_new and about is not None and about.kind == "setting" and about.name in names:
            return f"with the correct name its value is refused ({result.code}: {finding.message})"
    return ""


def _key(word: str) -> str:
    """Return the setting that a word of the command names."""
    return word.lstrip("+~").partition("=")[0]


def _complaints(report: Report, plan: Plan, places: Container[str]) -> list[int]:
    """Count the errors, warnings and hints of the rule that offer this fix or are about these files.

    New findings in other files are not this repair's.
    """
    counted = Counter(
        finding.severity
        for finding in findings_of(report, plan)
        if finding.fix == plan.fix.id or _place(finding) in places
    )
    return [counted[severity] for severity in ("error", "warning", "info")]


def has_more_errors(plan: Plan, before: Report, after: Report) -> bool:
    """Return whether the rule found more errors. An error that only lost its fix is not new."""
    was, now = (
        sum(finding.severity == "error" for finding in findings_of(report, plan))
        for report in (before, after)
    )
    return now > was


def findings_of(report: Report, plan: Plan) -> Iterator[Finding]:
    """Yield what the plan's rule found."""
    yield from (finding for result, finding in report.findings() if result.code == plan.code)


def _place(finding: Finding) -> str:
    """Return the file that a finding is about, "" for the machine or the environment."""
    return finding.location.path if finding.location else ""


def _has_remedy(
    session: Session, collection: Collection, code: str, finding: Finding, *, unsafe: bool
) -> bool:
    """Return whether a fix that this run may apply has a plan for the finding.

    A last resort counts as none: its plan takes minutes.
    """
    fix = session.registry.fix(finding.fix)
    if fix is None or fix.last_resort:
        return False
    plan = plan_of(fix, code, finding, collection)
    return not plan.refusal and (plan.safety == "safe" or (plan.safety == "unsafe" and unsafe))
