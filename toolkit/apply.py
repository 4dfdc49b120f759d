"""Carrying changes out and taking them back. This, and this alone, changes the examined environment.

A transaction is written into the journal first; then all its files change; then its bytecode is written and its
commands are run, in order. If one of them fails, everything before it is taken back. If this process is killed, the
next one takes it back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit import bytecode, command, files, journal, lock, removal_record
from verl_doctor.toolkit.bytecode import Remaining
from verl_doctor.toolkit.change import (
    Change,
    CompileBytecode,
    NewFile,
    NewLink,
    ReplaceFile,
    RunCommand,
    SetVariable,
)
from verl_doctor.toolkit.journal import (
    BytecodeRecord,
    CommandRecord,
    Entry,
    FileRecord,
    Planned,
    Record,
    RemovalRecord,
)
from verl_doctor.toolkit.refused import Refused, said_by
from verl_doctor.toolkit.text import counted

__all__ = ["Changed", "Refused", "State", "Transaction", "apply", "history", "recover", "undo"]

State = Literal["applied", "undone", "failed", "interrupted", "in progress"]

# Seconds to wait for another doctor that works on the same environment.
PATIENCE = 10.0

_DONE = {"replace_file": "replaced", "new_file": "made", "new_link": "made the link"}


@dataclass(frozen=True)
class Changed:
    """One change of a transaction: what it was, where, and whether it is still there.

    `paths` are the files or folders that it changed, none for a command. `now` is "in place", "partly in place", "changed again by 0007", "changed by someone else", "gone back" or "cannot be
    undone".
    """

    kind: str
    path: str
    description: str
    now: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transaction:
    """What was changed at once. `time` is UTC in ISO 8601, `fix` and `code` say for what, `folder` holds the originals."""

    id: str
    time: str
    fix: str
    code: str
    state: State
    changes: tuple[Changed, ...]
    folder: Path


def apply(
    changes: Sequence[Change], home: Path, *, fix: str, code: str, patience: float = PATIENCE
) -> Transaction | None:
    """Carry out all changes, or none of them, and say what was done; None when everything was in place already.

    `home` is the journal's folder; it is made when something is written. Waits up to `patience` seconds for another
    doctor. Raises Refused; everything is then as it was, except for what a command did and what the message names.
    """
    with _sentences(f"{fix} was not applied, and nothing was changed"):
        if not os.path.isdir(home) and not _plan(changes):
            return None
        journal.open_home(home)
        with lock.exclusive(home, patience) as held:
            _recover(home)
            plan = _plan(changes)
            if not plan:
                return None
            entry = journal.begin(home, fix, code, plan)
            try:
                _carry_out(entry, held)
                entry = journal.mark(entry, "applied")
            except BaseException as error:
                told = _roll_back(entry)
                if isinstance(error, (OSError, Refused)):
                    raise Refused(f"{_sentence(error)}; {told}") from error
                raise
            return _transaction(entry, (entry,), None)


def undo(
    home: Path, identifier: str | None = None, *, everything: bool = False, patience: float = PATIENCE
) -> list[Transaction]:
    """Take back the transaction named `identifier`, or `everything`, newest first, or the last one.

    Returns what was undone; a transaction that a killed doctor left half-way is the last one. Raises Refused with the difference when a file was changed by someone else since; the
    transaction is then as it was. With `everything`, the others are taken back all the same, and those that did
    nothing but run commands are passed over.
    """
    with _sentences("nothing was undone"):
        if not journal.is_journal(home):
            raise Refused(f"there is nothing to undo: {home} is no journal, or an empty one")
        with lock.exclusive(home, patience):
            recovered = _recover(home)
            entries = journal.entries(home)
            if everything:
                return recovered + _undo_all(home, entries)
            if recovered and identifier is None:
                return recovered
            chosen = _chosen(entries, identifier)
            return [done for done in recovered if done.id == chosen.id] or [_undo(chosen, entries)]


def recover(home: Path, *, patience: float = PATIENCE) -> None:
    """Finish what a killed doctor left: what it was applying or undoing is taken back. Raises Refused."""
    with _sentences(f"{home} could not be put in order"):
        if os.path.isdir(home):
            with lock.exclusive(home, patience):
                _recover(home)


def history(home: Path) -> tuple[Transaction, ...]:
    """All transactions of a journal, oldest first. Writes nothing. Raises Refused when the journal is damaged."""
    with _sentences(f"{home} could not be read"):
        holder = lock.holder(home)
        entries = _settled_entries(home)
        return tuple(_transaction(entry, entries, holder) for entry in entries)


@contextmanager
def _sentences(beginning: str) -> Iterator[None]:
    """Turn what the operating system says into a sentence for people."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{beginning}: {said_by(error)}") from error


def _sentence(error: OSError | Refused) -> str:
    return said_by(error) if isinstance(error, OSError) else str(error)


def _plan(changes: Sequence[Change]) -> list[Planned]:
    """Check every change against this disk. What is in place already is left out."""
    found = [_plan_one(change) for change in changes]
    plan = [planned for planned in found if planned is not None]
    seen: set[str] = set()
    for planned in plan:
        if isinstance(planned.record, FileRecord):
            if planned.record.file in seen:
                raise Refused(f"the plan changes {planned.record.file} twice; that is a defect of its fix")
            seen.add(planned.record.file)
    return plan


def _plan_one(change: Change) -> Planned | None:
    match change:
        case ReplaceFile() | NewFile() | NewLink():
            return files.plan(change)
        case CompileBytecode():
            return bytecode.plan(change)
        case RunCommand():
            return command.plan(change)
        case SetVariable(name):
            raise Refused(f"{name} belongs in the job's environment, into files that --output-env DIR names")


def _carry_out(entry: Entry, held: int) -> None:
    files.move(entry, [index for index, _ in entry.files()], "after")
    for index, record in enumerate(entry.changes):
        match record:
            case BytecodeRecord():
                bytecode.write(entry, index, record, held)
            case CommandRecord():
                command.run(entry, index, record)


def _take_back(entry: Entry, ours: frozenset[str]) -> list[str]:
    """Give back what is in place, whatever was reached, and return the files that someone else changed."""
    for index, record in enumerate(entry.changes):
        if isinstance(record, BytecodeRecord):
            bytecode.remove(entry, index, record)
    states = {index: files.state(record) for index, record in entry.files()}
    moving = [index for index, state in states.items() if state == "after"]
    files.move(entry, moving[::-1], "before", ours)
    return [record.file for index, record in entry.files() if states[index] == "other"]


def _roll_back(entry: Entry) -> str:
    """Take a failed transaction back at once, and say what became of it."""
    try:
        left = _take_back(entry, frozenset())
        if left:
            return f"{', '.join(left)} was changed by someone else meanwhile and left as it is; see verl-doctor undo --list"
        if command.was_run(entry):
            journal.mark(entry, "failed")
            return "the changes to files were taken back, what the command did was not"
        journal.drop(entry)
    except (OSError, Refused) as error:
        return f"taking it back failed too ({_sentence(error)}); verl-doctor undo will try again"
    return "everything is as it was"


def _recover(home: Path) -> list[Transaction]:
    """Take back what a killed doctor left half-way, unless someone else changed its files, and return what that was."""
    journal.tidy(home)
    entries = journal.entries(home)
    recovered = []
    for entry in reversed(entries):
        if entry.state in {"applying", "undoing"} and not _take_back(entry, _our_folders(entries)):
            settled = journal.mark(entry, "failed" if _did_what_stays(entry) else "undone")
            recovered.append(_transaction(settled, entries, None))
    return recovered


def _chosen(entries: Sequence[Entry], identifier: str | None) -> Entry:
    if identifier is None:
        for entry in reversed(entries):
            if entry.state not in {"undone", "failed"}:
                return entry
        raise Refused(
            "there is nothing to undo: " + ("all was undone already" if entries else "nothing was changed")
        )
    for entry in entries:
        if identifier.isascii() and identifier.isdigit() and entry.number == int(identifier[:18]):
            return entry
    raise Refused(f"there is no transaction {identifier}; verl-doctor undo --list names those there are")


def _undo_all(home: Path, entries: Sequence[Entry]) -> list[Transaction]:
    undone, refused = [], []
    for entry in reversed(entries):
        if entry.state in {"undone", "failed"} or _cannot_be_undone(entry):
            continue
        try:
            undone.append(_undo(entry, journal.entries(home)))
        except (Refused, OSError) as error:
            refused.append(_sentence(error))
    if refused:
        done = ", ".join(transaction.id for transaction in undone) or "nothing"
        raise Refused("\n".join([*refused, f"undone: {done}"]))
    return undone


def _undo(entry: Entry, entries: Sequence[Entry]) -> Transaction:
    _demand_undoable(entry, entries)
    ours = _our_folders(entries)
    undoing = journal.mark(entry, "undoing") if entry.state == "applied" else entry
    try:
        _take_back(undoing, ours)
        undone = journal.mark(undoing, "undone")
    except BaseException as error:
        if entry.state == "applied":
            told = _put_again(undoing)
            if isinstance(error, (OSError, Refused)):
                raise Refused(f"{entry.id} was not undone: {_sentence(error)}; {told}") from error
        raise
    return _transaction(undone, entries, None)


def _demand_undoable(entry: Entry, entries: Sequence[Entry]) -> None:
    """Refuse before anything is written: all files must be on one of the two sides of their change."""
    if entry.state in {"undone", "failed"}:
        raise Refused(
            f"{entry.id} was undone already"
            if entry.state == "undone"
            else f"{entry.id} failed, and its files were given back then; what its commands did cannot be undone"
        )
    if any(isinstance(record, RemovalRecord) for record in entry.changes):
        raise Refused(
            f"{entry.id} removed what dead jobs had left, which cannot be undone; name an older transaction to undo that one"
        )
    if _cannot_be_undone(entry):
        ran = ", ".join(f"`{command.said(r)}`" for r in entry.changes if isinstance(r, CommandRecord))
        raise Refused(
            f"{entry.id} ran {ran}, which cannot be undone; name an older transaction to undo that one"
        )
    problems = []
    for index, record in entry.files():
        newer = _changed_again(entry, record, entries)
        if newer is not None:
            raise Refused(
                f"{entry.id} cannot be undone before {newer}, which changed {record.file} again: undo {newer} first"
            )
        if files.state(record) == "other":
            problems.append(files.changed_since(entry, index, record))
    if problems:
        raise Refused(f"{entry.id} was not undone, and nothing was changed: " + "\n".join(problems))


def _cannot_be_undone(entry: Entry) -> bool:
    return all(isinstance(record, (CommandRecord, RemovalRecord)) for record in entry.changes)


def _did_what_stays(entry: Entry) -> bool:
    removed = any(isinstance(record, RemovalRecord) for record in entry.changes)
    return removed or command.was_run(entry)


def _put_again(entry: Entry) -> str:
    """After an undo that failed half-way: bring the files to where they were before it."""
    try:
        states = {index: files.state(record) for index, record in entry.files()}
        files.move(entry, [index for index, state in states.items() if state == "before"], "after")
        journal.mark(entry, "applied")
    except (OSError, Refused) as error:
        return f"it is half undone ({_sentence(error)}); verl-doctor undo will finish it"
    if any(isinstance(record, BytecodeRecord) for record in entry.changes):
        return "all files are as they were, except for bytecode caches that were removed already"
    return "everything is as it was"


def _changed_again(entry: Entry, record: FileRecord, entries: Sequence[Entry]) -> str | None:
    """The newest later transaction that is in force and changed the same file."""
    later = (other for other in reversed(entries) if other.number > entry.number and other.state == "applied")
    return next((o.id for o in later if any(theirs.file == record.file for _, theirs in o.files())), None)


def _our_folders(entries: Sequence[Entry]) -> frozenset[str]:
    return frozenset(folder for entry in entries for _, record in entry.files() for folder in record.folders)


def _settled_entries(home: Path) -> tuple[Entry, ...]:
    """Read the journal without its lock: a state that changes under the reader is no damage."""
    for _ in range(5):
        names = sorted(home.iterdir()) if os.path.isdir(home) else []
        try:
            return journal.entries(home)
        except Refused:
            if names == sorted(home.iterdir()):
                raise
    return journal.entries(home)


def _transaction(entry: Entry, entries: Sequence[Entry], holder: str | None) -> Transaction:
    state: State
    match entry.state:
        case "applying" | "undoing":
            state = "in progress" if holder else "interrupted"
        case settled:
            state = settled
    changes = tuple(_changed(entry, index, record, entries) for index, record in enumerate(entry.changes))
    return Transaction(entry.id, entry.time, entry.fix, entry.code, state, changes, entry.folder)


def _changed(entry: Entry, index: int, record: Record, entries: Sequence[Entry]) -> Changed:
    match record:
        case FileRecord(kind, path, file):
            now = _file_now(entry, record, entries)
            return Changed(kind, path, f"{_DONE[kind]} {path}", now, (file,))
        case BytecodeRecord(kind, _, roots):
            said, now = _bytecode_now(entry, bytecode.remaining(entry, index, record))
            return Changed(kind, ", ".join(roots), said, now, tuple(roots))
        case CommandRecord(kind):
            return Changed(
                kind, record.argv[0] if record.argv else "", f"ran {command.said(record)}", "cannot be undone"
            )
        case RemovalRecord(kind, what, name):
            told = removal_record.told(entry, index)
            return Changed(kind, name, f"{what} {name}: {told}", "cannot be undone")


def _bytecode_now(entry: Entry, caches: Remaining) -> tuple[str, str]:
    """What was done, and what is left of it. After an interruption nobody knows who wrote a cache that is there."""
    if caches.written is None:
        done = f"had {counted(caches.meant, 'bytecode cache')} to write and did not come to the end"
        total = caches.meant
    else:
        done, total = f"wrote {counted(caches.written, 'bytecode cache')}", caches.written
    if entry.state in {"undone", "failed"}:
        return done, "gone back"
    now = "gone back" if not caches.there else "in place" if caches.there == total else "partly in place"
    return f"{done}, {caches.there} {'is' if caches.there == 1 else 'are'} there", now


def _file_now(entry: Entry, record: FileRecord, entries: Sequence[Entry]) -> str:
    if entry.state in {"undone", "failed"}:
        return "gone back"
    if newer := _changed_again(entry, record, entries):
        return f"changed again by {newer}"
    return {"after": "in place", "before": "gone back", "other": "changed by someone else"}[
        files.state(record)
    ]
