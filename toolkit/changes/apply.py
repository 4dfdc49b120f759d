"""Carries out changes. No other package changes the examined environment.

A transaction is first written to the journal. Then all its files change, its bytecode is written and its
commands run, in this order. If a step fails, all earlier ones are undone. If this process is killed, the next
run undoes the transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_doctor.toolkit.change import (
    Change,
    CompileBytecode,
    InstallPackages,
    NewFile,
    NewLink,
    RemoveFile,
    ReplaceFile,
    RunCommand,
    SetVariable,
)
from verl_doctor.toolkit.changes import (
    bytecode,
    command,
    files,
    folder_times,
    installation,
    journal,
    lock,
    planned_files,
    private_folder,
)
from verl_doctor.toolkit.changes.private_folder import PrivateFolder
from verl_doctor.toolkit.changes.records import (
    BytecodeRecord,
    CommandRecord,
    Entry,
    FileRecord,
    InstallRecord,
    Planned,
    Run,
)
from verl_doctor.toolkit.changes.sentences import sentence, sentences
from verl_doctor.toolkit.changes.transactions import Changed, State, Transaction, history, transaction
from verl_doctor.toolkit.changes.undoable import demand_within
from verl_doctor.toolkit.changes.undoing import (
    PartlyUndoneError,
    recover,
    recover_locked,
    roll_back,
    undo,
    undo_together,
)
from verl_doctor.toolkit.system.errors import Refused

__all__ = [
    "Changed",
    "PartlyUndoneError",
    "Refused",
    "State",
    "Transaction",
    "apply",
    "demand_possible",
    "history",
    "recover",
    "undo",
    "undo_together",
]


def apply(
    changes: Sequence[Change],
    home: Path,
    *,
    fix: str,
    code: str,
    patience: float = lock.TIMEOUT,
    run: Run = Run(),  # noqa: B008 - it is frozen
    through_links: bool = False,
) -> Transaction | None:
    """Carry out all changes or none. Return what was done; None if everything was already in place.

    `home` is the journal's folder, created on the first write. All changes of the same `run` are undone
    together. A link out of its environment becomes a private copy, unless the changes go `through_links`.
    Waits up to `patience` seconds for another doctor. Raises Refused: everything is then unchanged, except
    for the effects of commands and what the message names.
    """
    with sentences(f"{fix} was not applied, and nothing was changed"):
        if not os.path.isdir(home) and not _plan(changes, through_links=through_links):
            return None
        journal.open_home(home)
        with lock.exclusive(home, patience) as held:
            recover_locked(home)
            plan = _plan(changes, through_links=through_links)
            if not plan:
                return None
            entry = journal.begin(home, fix, code, plan, run, folder_times.around(plan))
            try:
                demand_within(entry)
                _carry_out(entry, held)
                entry = journal.mark(entry, "applied")
            except BaseException as error:
                outcome = roll_back(entry)
                if isinstance(error, (OSError, Refused)):
                    raise Refused(f"{sentence(error)}; {outcome}") from error
                raise
            return transaction(entry, (entry,), None)


def demand_possible(changes: Sequence[Change]) -> None:
    """Raise Refused if changes cannot be carried out in the current state. Nothing is written."""
    _plan(changes, through_links=False)


def _plan(changes: Sequence[Change], *, through_links: bool) -> list[Planned]:
    """Check every change against this disk, and skip those already in place."""
    private = {} if through_links else private_folder.wanted(changes)
    found = [(change, _plan_one(change, private, through_links=through_links)) for change in changes]
    made = {
        private[change.path].link: private[change.path].planned()
        for change, planned in found
        if planned is not None and isinstance(change, ReplaceFile) and change.path in private
    }
    plan = [*made.values(), *(planned for _, planned in found if planned is not None)]
    seen: set[str] = set()
    for planned in plan:
        if isinstance(planned.record, FileRecord):
            if planned.record.file in seen:
                raise Refused(f"the plan changes {planned.record.file} twice; this is a bug of its fix")
            seen.add(planned.record.file)
    return plan


def _plan_one(
    change: Change, private: Mapping[Path, PrivateFolder], *, through_links: bool
) -> Planned | None:
    match change:
        case ReplaceFile() | NewFile() | RemoveFile() | NewLink():
            return planned_files.plan(change, through_links=through_links, private=private.get(change.path))
        case CompileBytecode():
            return bytecode.plan(change)
        case RunCommand():
            return command.plan(change)
        case InstallPackages():
            return installation.plan(change)
        case SetVariable(name):
            raise Refused(f"{name} belongs in the job's environment, which --output-env DIR writes to files")


def _carry_out(entry: Entry, held: int) -> None:
    files.move(entry, [index for index, _ in entry.files()], "after")
    for index, record in enumerate(entry.changes):
        match record:
            case BytecodeRecord():
                bytecode.write(entry, index, record, held)
            case CommandRecord():
                command.run(entry, index, record)
            case InstallRecord():
                installation.make(entry, index, record, held)
