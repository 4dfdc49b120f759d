"""Undoes changes: those of a transaction, of a whole run, or those that a killed doctor left unfinished."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from verl_doctor.toolkit.changes import (
    bytecode,
    command,
    files,
    installation,
    journal,
    later_edits,
    lock,
    safe_write,
)
from verl_doctor.toolkit.changes.folder_times import restore_folder_times
from verl_doctor.toolkit.changes.journal_entries import demand_own, entries_of, is_journal
from verl_doctor.toolkit.changes.records import BytecodeRecord, Entry, InstallRecord, RemovalRecord, Side
from verl_doctor.toolkit.changes.sentences import announce, sentence, sentences
from verl_doctor.toolkit.changes.transactions import EDITED, MERGED, Transaction, transaction
from verl_doctor.toolkit.changes.undoable import (
    cannot_be_undone,
    demand_undoable,
    why_not_undoable,
    why_outside,
)
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.text import listed

_Name = tuple[Path, str]


class PartlyUndoneError(Refused):
    """Why some transactions of a run were not undone, and what was `undone`."""

    def __init__(self, reason: str, undone: Sequence[Transaction]) -> None:
        """Keep what was undone."""
        super().__init__(reason)
        self.undone = tuple(undone)


def undo(
    home: Path, identifier: str | None = None, *, everything: bool = False, patience: float = lock.TIMEOUT
) -> list[Transaction]:
    """Undo the transaction named `identifier`, or `everything`, newest first; by default the last one.

    Returns what was undone. A transaction that a killed doctor left unfinished counts as the last one. Raises
    Refused, with the difference, if a file was edited since; the transaction then stays as it was. With
    `everything`, the others are undone anyway, and those that only ran commands are skipped.
    """
    with _locked([home], patience) as journals:
        recovered, entries = journals[home]
        if everything:
            return recovered + _undo_all(home, entries)
        if recovered and identifier is None:
            return recovered
        chosen = _chosen(entries, identifier)
        if again := [done for done in recovered if done.id == chosen.id]:
            return again
        demand_undoable(chosen, entries)
        return [_over(_undo(chosen, entries), entries)]


def undo_together(
    names: Iterable[_Name],
    *,
    named: Sequence[Path] = (),
    keep_edits: bool = False,
    patience: float = lock.TIMEOUT,
) -> list[Transaction]:
    """Undo one run's changes, given by journal and number: all, or nothing if a failure is foreseeable.

    `named` are the trees that the user named, to which an environment's journal may refer. Returns what was
    undone, newest first. Raises Refused, after redoing what was already undone. Effects of commands remain.

    With `keep_edits`, later edits of the files stay, and the lines of the changes go. A transaction of which
    some lines were edited too stays, without preventing the others: then PartlyUndoneError is raised. An
    interrupted transaction is settled: such files stay as they are.
    """
    requested = list(dict.fromkeys(names))
    refusals: list[str] | None = [] if keep_edits else None
    with _locked([home for home, _ in requested], patience, named) as journals:
        parts = [(_chosen(journals[home][1], number), home) for home, number in requested]
        recovered = [
            transaction
            for home, (done, _) in journals.items()
            for transaction in done
            if (home, transaction.id) in requested
        ]
        undone = recovered + _undo_parts(
            [
                part
                for part, home in parts
                if part.id not in {transaction.id for transaction in journals[home][0]}
            ],
            {home: entries for home, (_, entries) in journals.items()},
            named,
            alone=len(parts) == 1,
            refusals=refusals,
        )
    if refusals:
        raise PartlyUndoneError("\n".join(refusals), undone)
    return undone


@contextlib.contextmanager
def _locked(
    homes: Iterable[Path], patience: float, named: Sequence[Path] = ()
) -> Iterator[Mapping[Path, tuple[list[Transaction], Sequence[Entry]]]]:
    """Lock journals.

    Provide for each what was left unfinished and is undone now, and its entries. Raises Refused.
    """
    homes = list(dict.fromkeys(homes))
    with sentences("nothing was undone"), ExitStack() as held:
        for home in sorted(homes):
            if not is_journal(home):
                raise Refused(f"nothing to undo: {home} has no journal, or an empty one")
            demand_own(home)
            held.enter_context(lock.exclusive(home, patience))
        yield {home: (recover_locked(home, named), entries_of(home)) for home in homes}


def _undo_parts(
    parts: Sequence[Entry],
    journals: Mapping[Path, Sequence[Entry]],
    named: Sequence[Path],
    *,
    alone: bool,
    refusals: list[str] | None,
) -> list[Transaction]:
    """Undo the parts of one run, newest first, after checking all of them.

    With `refusals`, later edits are kept, and why a part was not undone is added to them.
    """
    standing = parts if alone else [part for part in parts if part.state not in {"undone", "failed"}]
    undone_first: list[Entry] = []
    contents: dict[str, bytes | None] | None = None if refusals is None else {}
    for part in sorted(standing, key=_age, reverse=True):
        if not alone and cannot_be_undone(part):
            announce(f"{part.id} {why_not_undoable(part)}")
            continue
        try:
            of_run = () if alone else {other.id for other in standing if other.home == part.home}
            demand_undoable(
                part, journals[part.home], undone_first, named, together=of_run, contents=contents
            )
        except Refused as error:
            if refusals is None:
                raise
            refusals.append(str(error))
        else:
            undone_first.append(part)
    undone: list[Entry] = []
    try:
        for part in undone_first:
            undone.append(_undo(part, entries_of(part.home), keep_edits=contents is not None))  # noqa: PERF401 - what was undone counts when a part is refused
    except (Refused, OSError) as error:
        outcomes = [f"{part.id}: {_redo(part)}" for part in reversed(undone)]
        raise Refused("; ".join([sentence(error), *outcomes])) from error
    return [_over(part, journals[part.home]) for part in undone]


def _age(entry: Entry) -> tuple[str, int]:
    return entry.time, entry.number


def _over(entry: Entry, entries: Sequence[Entry]) -> Transaction:
    """Clean up after a transaction that was undone."""
    with contextlib.suppress(OSError):  # otherwise `tidy` removes them
        journal.forget_originals(entry)
    return transaction(entry, entries, None)


def recover(home: Path, *, patience: float = lock.TIMEOUT) -> None:
    """Undo what a killed doctor was applying or undoing. Raises Refused."""
    with sentences(f"{home} could not be repaired"):
        if os.path.isdir(home):
            demand_own(home)
            with lock.exclusive(home, patience):
                recover_locked(home)


def _revert(entry: Entry, ours: frozenset[str], *, keep_edits: bool = False) -> list[str]:
    """Revert a transaction, however far it got. Return the files that were edited since and not touched.

    With `keep_edits`, the change is undone in edited files too, where the edits do not touch its lines.
    """
    for index, record in enumerate(entry.changes):
        if isinstance(record, BytecodeRecord):
            bytecode.remove(entry, index, record)
        elif isinstance(record, InstallRecord):
            installation.take_back(entry, index, record)
    states = {index: files.state(record) for index, record in entry.files()}
    moving = [index for index, state in states.items() if state == "after"]
    files.move(entry, moving[::-1], "before", ours)
    edited = {index for index, state in states.items() if state == "other"}
    merged = _move_beside_edits(entry, edited, "before") if keep_edits else set()
    restore_folder_times(entry.around)
    return [record.file for index, record in entry.files() if index in edited - merged]


def _move_beside_edits(entry: Entry, edited: Iterable[int], side: Side) -> set[int]:
    """Move edited files to this side of their change and keep the edits. Return those that were moved."""
    records = dict(entry.files())
    merged: set[int] = set()
    for index in edited:
        found = safe_write.read(Path(records[index].file))
        content = later_edits.merged(entry, index, records[index], side, found)
        if found is not None and content is not None:
            journal.note(entry, index, MERGED, b"")
            files.write(entry, index, records[index], found, content)
            merged.add(index)
    return merged


def roll_back(entry: Entry) -> str:
    """Undo a failed transaction, and describe the result."""
    try:
        left = _revert(entry, frozenset())
        if left:
            return f"{', '.join(left)} was changed meanwhile and was not touched; see verl-doctor undo --list"
        if command.was_run(entry):
            journal.forget_originals(journal.mark(entry, "failed"))
            return "the changes to files were undone, the effects of the command were not"
        journal.drop(entry)
    except (OSError, Refused) as error:
        return f"undoing it failed too ({sentence(error)}); verl-doctor undo will try again"
    return "everything is as it was"


def recover_locked(home: Path, named: Sequence[Path] = ()) -> list[Transaction]:
    """Undo what a killed doctor left unfinished, unless its files were edited since, and return it.

    The caller holds the journal's lock. The result is always announced.
    """
    demand_own(home)
    journal.tidy(home)
    entries = entries_of(home)
    recovered = []
    for entry in reversed(entries):
        if entry.state not in {"applying", "undoing"}:
            continue
        about = f"{entry.fix} for {entry.code} of {entry.time} ({entry.home}/{entry.id}) was interrupted"
        if why := why_outside(entry, named):
            announce(f"{about}, and was not touched: {why}")
            continue
        paths = listed([record.path for _, record in entry.files()], 4)
        if changed := _revert(entry, _our_folders(entries)):
            announce(
                f"{about} and was undone, except for {', '.join(changed)}, edited since; to keep these "
                "edits and settle this: verl-doctor undo "
                f"{shlex.quote(f'{entry.home}/{entry.id}')} --keep-edits"
            )
            continue
        settled = journal.mark(entry, "failed" if _did_what_stays(entry) else "undone")
        announce(f"{about}, and was undone" + (f": {paths}" if paths else ""))
        recovered.append(_over(settled, entries))
    return recovered


def _chosen(entries: Sequence[Entry], identifier: str | None) -> Entry:
    if identifier is None:
        for entry in reversed(entries):
            if entry.state not in {"undone", "failed"}:
                return entry
        raise Refused(
            "there is nothing to undo: "
            + ("everything is already undone" if entries else "nothing was changed")
        )
    for entry in entries:
        if identifier.isascii() and identifier.isdigit() and entry.number == int(identifier[:18]):
            return entry
    raise Refused(f"no transaction {identifier}; run verl-doctor undo --list")


def _undo_all(home: Path, entries: Sequence[Entry]) -> list[Transaction]:
    undone, refused = [], []
    for entry in reversed(entries):
        if entry.state in {"undone", "failed"} or cannot_be_undone(entry):
            continue
        try:
            now = entries_of(home)
            demand_undoable(entry, now)
            undone.append(_over(_undo(entry, now), now))
        except (Refused, OSError) as error:
            refused.append(sentence(error))
    if refused:
        done = ", ".join(transaction.id for transaction in undone) or "nothing"
        raise Refused("\n".join([*refused, f"undone: {done}"]))
    return undone


def _undo(entry: Entry, entries: Sequence[Entry], *, keep_edits: bool = False) -> Entry:
    ours = _our_folders(entries)
    undoing = journal.mark(entry, "undoing") if entry.state == "applied" else entry
    try:
        left = _revert(undoing, ours, keep_edits=keep_edits)
        _demand_all(left, entry)
        for index, record in undoing.files():
            if record.file in left:
                journal.note(undoing, index, EDITED, b"")
        return journal.mark(undoing, "undone")
    except BaseException as error:
        if entry.state == "applied":
            outcome = _redo(undoing)
            if isinstance(error, (OSError, Refused)):
                raise Refused(f"{entry.id} was not undone: {sentence(error)}; {outcome}") from error
        raise


def _demand_all(left: Sequence[str], entry: Entry) -> None:
    """Refuse to count a transaction as undone if some of its files were not touched.

    One that was interrupted is settled anyway.
    """
    if left and entry.state == "applied":
        raise Refused(f"{', '.join(left)} was changed in this very moment; try again")


def _did_what_stays(entry: Entry) -> bool:
    removed = any(isinstance(record, RemovalRecord) for record in entry.changes)
    return removed or command.was_run(entry)


def _redo(entry: Entry) -> str:
    """Redo a transaction after an undo that failed halfway. Return the result as text."""
    try:
        states = {index: files.state(record) for index, record in entry.files()}
        files.move(entry, [index for index, state in states.items() if state == "before"], "after")
        edited = [index for index, state in states.items() if state == "other"]
        _move_beside_edits(entry, [i for i in edited if journal.noted(entry, i, MERGED) is not None], "after")
        journal.mark(entry, "applied")
    except (OSError, Refused) as error:
        return f"it is half undone ({sentence(error)}); verl-doctor undo will finish it"
    if any(isinstance(record, BytecodeRecord) for record in entry.changes):
        return "all files are as they were, except for bytecode caches that were already removed"
    return "everything is as it was"


def _our_folders(entries: Sequence[Entry]) -> frozenset[str]:
    return frozenset(folder for entry in entries for _, record in entry.files() for folder in record.folders)
