"""Write installed packages' bytecode caches before the first import: PY103's repair, which can be undone.

PY103 leaves this to the first import if that will write them. `--bytecode` does not wait for that import.
"""

from __future__ import annotations

from verl_doctor.toolkit.changes import apply, links
from verl_doctor.toolkit.changes.records import new_run
from verl_doctor.toolkit.console.progress import announce
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.repair.plan import plan_of
from verl_doctor.toolkit.result import Repair
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import journal_home, journal_homes

_RULE, _FIX = "PY103", "precompile"


def write_missing(run: Session, collection: Collection, *, dry_run: bool) -> Repair | None:
    """Write the missing caches, and check again; None if so few are missing that the rule reports nothing."""
    narrowed = run.narrowed((_RULE,))
    finding = _finding(narrowed, collection)
    fix = run.registry.fix(_FIX)
    if finding is None or fix is None:
        return None
    plan = plan_of(fix, _RULE, finding, collection)
    if plan.refusal:
        return plan.ended("refused")
    if dry_run:
        return plan.ended("planned", finding.message)
    announce(f"{finding.message}: compiling on all cores, which takes up to a minute")
    home = journal_home(run.target, links.places(plan.changes), about_environment=True)
    try:
        own = new_run(journal_homes(run.target), run.target.prefix)
        done = apply.apply(plan.changes, home, fix=fix.id, code=_RULE, run=own)
    except Refused as error:
        return plan.ended("refused", str(error))
    after = _finding(narrowed, narrowed.look())
    name = f"{home}/{done.id}" if done else None
    return plan.ended("still failing" if after else "repaired", after.message if after else "", name)


def _finding(session: Session, collection: Collection) -> Finding | None:
    return next((finding for _, finding in session.check(collection).findings()), None)
