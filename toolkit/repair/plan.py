"""Plans: what each fix would do about the findings of a report, for people to read.

Nothing is carried out here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.change import (
    Change,
    Fix,
    InstallPackages,
    NewFile,
    NewLink,
    Refusal,
    RemoveFile,
    ReplaceFile,
    Safety,
    SetVariable,
    describe,
    safety_of,
)
from verl_doctor.toolkit.changes.difference import unified
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown, arguments_from
from verl_doctor.toolkit.repair import envfile, envfile_shell
from verl_doctor.toolkit.result import CheckResult, Outcome, Repair, Report
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted


@dataclass(frozen=True)
class Plan:
    """What a fix would do about those findings of a rule that the same changes repair.

    `left_out` lists the requested variables that no package would read.
    """

    fix: Fix
    code: str
    changes: tuple[Change, ...] = ()
    refusal: str = ""
    left_out: str = ""

    @property
    def variables(self) -> tuple[SetVariable, ...]:
        """The changes to the job's environment."""
        return tuple(change for change in self.changes if isinstance(change, SetVariable))

    @property
    def why(self) -> str:
        """The notes of its changes to files."""
        reasons = (change.why for change in self.changes if isinstance(change, ReplaceFile) and change.why)
        return "; ".join(dict.fromkeys(reasons))

    @property
    def on_disk(self) -> tuple[Change, ...]:
        """The changes to anything else."""
        return tuple(change for change in self.changes if not isinstance(change, SetVariable))

    @property
    def safety(self) -> Safety:
        """The fix's declared safety, unless a change is unsafe by type."""
        return safety_of(self.fix.safety, list(self.changes))

    def ended(
        self,
        outcome: Outcome,
        reason: str = "",
        transaction: str | None = None,
        notes: Sequence[str] = (),
    ) -> Repair:
        """Return the plan and its result, for the report."""
        shown = [_without_secret(change) for change in self.changes]
        return Repair(
            fix=self.fix.id,
            code=self.code,
            title=self.fix.title,
            safety=self.safety,
            outcome=outcome,
            reason=reason or self.refusal or self.left_out or self.why,
            changes=tuple(map(describe, shown)),
            diff="".join(map(diff_of, shown)),
            restart=self.fix.restart or ("Ray and the job" if self.variables else ""),
            transaction=transaction,
            notes=tuple(notes),
        )


def plans(session: Session, collection: Collection, report: Report) -> list[Plan]:
    """Request a plan from the fix of each finding. Findings that the same changes would repair share one."""
    found = (
        plan_of(fix, result.code, finding, collection) for result, finding, fix in fixable(session, report)
    )
    return list(dict.fromkeys(found))


def fixable(session: Session, report: Report) -> Iterator[tuple[CheckResult, Finding, Fix]]:
    """Yield the findings that a fix is for. A hint is repaired only when its rule was selected by name.

    So is a warning for which packages would be installed, where a launch script is to be repaired.
    """
    selects = bool(session.selection.select)
    for result, finding in report.findings():
        fix = session.registry.fix(finding.fix)
        if fix is None or (finding.severity == "info" and not selects):
            continue
        if fix.installs and finding.severity != "error" and session.target.files and not selects:
            continue
        yield result, finding, fix


def plan_of(fix: Fix, code: str, finding: Finding, collection: Collection) -> Plan:
    """Return what a fix would do about one finding; when it refuses or raises, the reason."""
    arguments = arguments_from(fix.needs, collection.get)
    if isinstance(arguments, Unknown):
        return Plan(fix, code, refusal=arguments.reason)
    try:
        changes = fix.plan(finding, **arguments)
        return (
            Plan(fix, code, refusal=changes.reason)
            if isinstance(changes, Refusal)
            else Plan(fix, code, tuple(with_reason(change, finding) for change in changes))
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a fix that breaks is a refusal, not the end of the run
        return Plan(fix, code, refusal=f"the fix broke: {type(error).__name__}: {error}")


def with_reason(change: Change, finding: Finding) -> Change:
    """Use the finding's reason for a variable without one."""
    if isinstance(change, SetVariable) and not change.why:
        return replace(change, why=finding.message)
    return change


def diff_of(change: Change) -> str:
    """Return a change for people: a unified diff for a file, a sentence for the rest."""
    match change:
        case ReplaceFile(path, before, after):
            return "".join(unified(before, after, (f"a{path}", f"b{path}")))
        case NewFile(path, content):
            return "".join(unified(b"", content, ("/dev/null", f"b{path}")))
        case RemoveFile(path, before):
            return "".join(unified(before, b"", (f"a{path}", "/dev/null")))
        case NewLink(path, target):
            return f"$ ln -s {shlex.quote(str(target))} {shlex.quote(str(path))}\n"
        case SetVariable(name, value, prepend=prepend):
            return f"{envfile_shell.statement(name, value, prepend=prepend)}\n# {envfile.reason_of(change)}\n"
    description = describe(change)
    if description["kind"] == "run_command":
        return f"$ {shlex.join(description['argv'])}\n# {description['why']}\n"
    if isinstance(change, InstallPackages):
        return "".join(_installation(change))
    return f"# {description['kind'].replace('_', ' ')}: {', '.join(description['roots'])}\n"


def _installation(change: InstallPackages) -> Iterator[str]:
    if not change.in_place:
        yield f"# a copy of {change.environment} in {change.copy}; the environment itself stays as it is\n"
    yield f"$ {shlex.join(change.command)}\n"
    yield from (f"# {line}\n" for line in change.why)
    yield f"# lock file: {counted(len(change.lock), 'pin')}\n"


def _without_secret(change: Change) -> Change:
    if isinstance(change, SetVariable) and not envfile.may_be_written(change.name, change.value or ""):
        return replace(change, value="***")
    return change
