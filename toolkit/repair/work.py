"""A run of repairs: what is examined, what is allowed, and what has been applied so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.change import Change, InstallPackages, ReplaceFile
from verl_doctor.toolkit.changes import apply, links
from verl_doctor.toolkit.changes.apply import Transaction
from verl_doctor.toolkit.changes.records import Run
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.repair import installs
from verl_doctor.toolkit.repair.forecast import with_best_fixes
from verl_doctor.toolkit.repair.job_environment import JobEnvironment
from verl_doctor.toolkit.repair.notes import notes
from verl_doctor.toolkit.repair.plan import Plan
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.target import journal_home


@dataclass(frozen=True)
class Edit:
    """A plan that was applied and edits files alone: its journal, and the name of its transaction there.

    `before` is what was found before it, `notes` are those of its repair.
    """

    plan: Plan
    changes: tuple[ReplaceFile, ...]
    home: Path
    transaction: str
    before: Report
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """A run of repairs: what is examined, what is allowed, and the job's environment so far.

    Without `job`, no variable is set. `seen` is the last examination, None if something has changed since.
    All applied changes belong to `run`, which is undone under the `name` of its first change; `edits` are
    those of files alone.
    """

    session: Session
    unsafe: bool
    job: JobEnvironment | None
    seen: tuple[Collection, Report] | None = None
    run: Run = field(default_factory=Run)
    name: str = ""
    edits: tuple[Edit, ...] = ()
    through_links: bool = False
    in_place: bool = False

    def home(self, changes: Iterable[Change]) -> Path:
        """Return the journal for these changes."""
        places = links.places(changes, through_links=self.through_links)
        return journal_home(self.session.target, places, about_environment=True)

    def notes(self, plan: Plan) -> tuple[str, ...]:
        """Return the side effects of this plan, and what undo could not restore of them."""
        prefix = self.session.target.prefix
        return notes(plan.on_disk, prefix, self.home(plan.on_disk), through_links=self.through_links)

    def apply(self, changes: Sequence[Change], fix: str, code: str) -> Transaction | None:
        """Apply changes as part of this run. Raises Refused."""
        return apply.apply(
            changes, self.home(changes), fix=fix, code=code, run=self.run, through_links=self.through_links
        )

    def named(self, home: Path, done: Transaction | None) -> Work:
        """Return the work, named after the first transaction that was applied."""
        return self if done is None or self.name else replace(self, name=f"{home}/{done.id}")

    def examined(self, known: Mapping[type, Any] | None = None) -> tuple[Work, Collection, Report]:
        """Examine everything, with the job's variables set so far.

        Not if nothing has changed since the last examination.

        `known` facts are not collected again.
        """
        if self.seen is not None:
            return self, *self.seen
        session = self.session if self.job is None else self.session.started_anew(self.job.as_started)
        found = examine(Request(session, known=known or {}))
        seen = found.facts, with_best_fixes(session, found.facts, found.report)
        return replace(self, seen=seen), *seen

    def using(self, copy: InstallPackages | None) -> Work:
        """Return the work on a copy of the environment, from which the job will be started."""
        if copy is None or copy.in_place:
            return self
        return replace(self, session=installs.in_copy(self.session, copy), seen=None)

    def may_do(self, plan: Plan) -> bool:
        """Return whether the user allowed this plan."""
        return not plan.refusal and (plan.safety == "safe" or (plan.safety == "unsafe" and self.unsafe))
