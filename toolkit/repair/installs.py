"""Plans that install packages, into a copy of the environment or in place, and how to start a job from it.

The job starts from the copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.change import Change, InstallPackages, RunCommand
from verl_doctor.toolkit.changes import links
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.repair.plan import Plan
from verl_doctor.toolkit.result import Repair


def of(plan: Plan) -> InstallPackages | None:
    """Return the installation in a plan, None if it has none."""
    return next((change for change in plan.changes if isinstance(change, InstallPackages)), None)


def placed(plan: Plan, *, in_place: bool) -> Plan:
    """Return the plan with its installation where the user requested it."""
    if not in_place:
        return plan
    return replace(plan, changes=tuple(map(_in_place, plan.changes)))


def in_copy(session: Session, install: InstallPackages) -> Session:
    """Return the session of a job started from the copy."""
    old, target = session.target.prefix, session.target
    python = install.copy / "bin" / target.python.name
    machine = replace(session.machine, environ=_activated(session.machine.environ, old, install.copy))
    return replace(
        session,
        machine=machine,
        target=replace(target, python=python, chosen_by="--python", chosen_at=""),
        begun=[],
    )


def words(session: Session, install: InstallPackages) -> Iterator[str]:
    """Describe what was done, where the lock file is, and what to change in a launch script.

    This concerns a launch script that names its interpreter.
    """
    yield from install.why
    yield f"lock file: {install.lock_file}"
    target = session.target
    if target.chosen_by == "launch script" and not install.in_place:
        new = install.copy / "bin" / target.python.name
        yield f"{target.chosen_at} names {target.python}: write {new} there"


def shown_once(repair: Repair, others: Sequence[Repair]) -> Repair:
    """Omit the text of a planned installation, or edit of a file, that was already shown for another rule."""
    first = next((other for other in others if _shown(other) == _shown(repair)), None)
    kinds = {change["kind"] for change in repair.changes}
    what = "installation" if "install_packages" in kinds else "change" if kinds == {"replace_file"} else ""
    if first is None or not what:
        return repair
    return replace(repair, diff="", reason=f"the same {what} as for {first.code}")


def _shown(repair: Repair) -> tuple[object, ...]:
    return repair.outcome, repair.changes, repair.diff


def _in_place(change: Change) -> Change:
    """Install into the environment itself.

    For a system-wide Python, which cannot be saved for undo, it is a command.
    """
    if not isinstance(change, InstallPackages):
        return change
    moved = replace(change, copy=change.environment)
    if links.is_environment(change.environment):
        return moved
    words = (word for word in moved.command if word not in {"-r", str(moved.lock_file)})
    return RunCommand((*words, *change.lock), "; ".join(change.why))


def _activated(environ: Mapping[str, str], old: Path, new: Path) -> dict[str, str]:
    """Return the variables of a shell in which the copy is activated instead."""
    folders = [entry for entry in environ.get("PATH", "").split(os.pathsep) if entry != str(old / "bin")]
    return {
        **environ,
        "VIRTUAL_ENV": str(new),
        "PATH": os.pathsep.join([str(new / "bin"), *filter(None, folders)]),
    }
