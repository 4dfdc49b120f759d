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
    links,
    lock,
    private_folder,
)
from verl_doctor.toolkit.changes.journal import (
    BytecodeRecord,
    CommandRecord,
    Entry,
    FileRecord,
    InstallRecord,
    RemovalRecord,
)
from verl_doctor.toolkit.changes.sentences import announce, sentence, sentences
from verl_doctor.toolkit.changes.transactions import EDITED, Transaction, changed_again, transaction
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.text import listed

_Name = tuple[Path, str]


def undo(
    home: Path, identifier: str | None = None, *, everything: bool = False, patience: float = lock.TIMEOUT
) -> list[Transaction]:
    """Undo the transaction named `identifier`, or `everything`, newest first; by default the last one.

    Returns what was undone. A transaction that a killed doctor left unfinished counts as the last one. Raises
    Refused, with the difference, if someone else has changed a file since; the transaction then stays as it
    was. With `everything`, the others are undone anyway, and those that only ran commands are skipped.
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
        _demand_undoable(chosen, entries)
        return [_over(_undo(chosen, entries), entries)]


def undo_together(
    names: Iterable[_Name],
    *,
    named: Sequence[Path] = (),
    keep_edits: bool = False,
    patience: float = lock.TIMEOUT,
) -> list[Transaction]:
    """Undo one run's changes, given by journal and number: all, or nothing if a failure is foreseeable.

    `named` are the trees that the user named, to which an environment's journal may refer. With `keep_edits`,
    files that someone else has changed since stay as they are, instead of preventing it. Returns what was
    undone, newest first. Raises Refused, after redoing what was already undone. Effects of commands remain.
    """
    requested = list(dict.fromkeys(names))
    with _locked([home for home, _ in requested], patience, named) as journals:
        parts = [(_chosen(journals[home][1], number), home) for home, number in requested]
        recovered = [
            transaction
            for home, (done, _) in journals.items()
            for transaction in done
            if (home, transaction.id) in requested
        ]
        return recovered + _undo_parts(
            [
                part
                for part, home in parts
                if part.id not in {transaction.id for transaction in journals[home][0]}
            ],
            {home: entries for home, (_, entries) in journals.items()},
            named,
            alone=len(parts) == 1,
            keep_edits=keep_edits,
        )


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
            if not journal.is_journal(home):
                raise Refused(f"nothing to undo: {home} has no journal, or an empty one")
            journal.demand_own(home)
            held.enter_context(lock.exclusive(home, patience))
        yield {home: (recover_locked(home, named), journal.entries(home)) for home in homes}


def _undo_parts(
    parts: Sequence[Entry],
    journals: Mapping[Path, Sequence[Entry]],
    named: Sequence[Path],
    *,
    alone: bool,
    keep_edits: bool,
) -> list[Transaction]:
    """Undo the parts of one run, newest first, after checking all of them."""
    standing = parts if alone else [part for part in parts if part.state not in {"undone", "failed"}]
    undone_first: list[Entry] = []
    for part in sorted(standing, key=_age, reverse=True):
        if not alone and _cannot_be_undone(part):
            announce(f"{part.id} {_why_not_undoable(part)}")
            continue
        _demand_undoable(part, journals[part.home], undone_first, named, keep_edits=keep_edits)
        undone_first.append(part)
    undone: list[Entry] = []
    try:
        for part in undone_first:
            undone.append(_undo(part, journal.entries(part.home)))  # noqa: PERF401 - what was undone counts when a part is refused
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
            journal.demand_own(home)
            with lock.exclusive(home, patience):
                recover_locked(home)


def _revert(entry: Entry, ours: frozenset[str]) -> list[str]:
    """Revert a transaction, however far it got. Return the files that someone else changed."""
    for index, record in enumerate(entry.changes):
        if isinstance(record, BytecodeRecord):
            bytecode.remove(entry, index, record)
        elif isinstance(record, InstallRecord):
            installation.take_back(entry, index, record)
    states = {index: files.state(record) for index, record in entry.files()}
    moving = [index for index, state in states.items() if state == "after"]
    files.move(entry, moving[::-1], "before", ours)
    files.restore_folder_times(entry.around)
    return [record.file for index, record in entry.files() if states[index] == "other"]


def roll_back(entry: Entry) -> str:
    """Undo a failed transaction, and describe the result."""
    try:
        left = _revert(entry, frozenset())
        if left:
            return (
                f"{', '.join(left)} was changed by someone else meanwhile and was not touched; see "
                "verl-doctor undo --list"
            )
        if command.was_run(entry):
            journal.forget_originals(journal.mark(entry, "failed"))
            return "the changes to files were undone, the effects of the command were not"
        journal.drop(entry)
    except (OSError, Refused) as error:
        return f"undoing it failed too ({sentence(error)}); verl-doctor undo will try again"
    return "everything is as it was"


def recover_locked(home: Path, named: Sequence[Path] = ()) -> list[Transaction]:
    """Undo what a killed doctor left unfinished, unless someone else changed its files, and return it.

    The caller holds the journal's lock. The result is always announced.
    """
    journal.demand_own(home)
    journal.tidy(home)
    entries = journal.entries(home)
    recovered = []
    for entry in reversed(entries):
        if entry.state not in {"applying", "undoing"}:
            continue
        about = f"{entry.fix} for {entry.code} of {entry.time} ({entry.home}/{entry.id}) was interrupted"
        if why := _why_outside(entry, named):
            announce(f"{about}, and was not touched: {why}")
            continue
        paths = listed([record.path for _, record in entry.files()], 4)
        if changed := _revert(entry, _our_folders(entries)):
            announce(
                f"{about} and was undone, except for {', '.join(changed)}, which was changed by someone "
                "else since; to settle this with that change: verl-doctor undo "
                f"{shlex.quote(f'{entry.home}/{entry.id}')} --keep-edits"
            )
            continue
        settled = journal.mark(entry, "failed" if _did_what_stays(entry) else "undone")
        announce(f"{about}, and was undone" + (f": {paths}" if paths else ""))
        recovered.append(_over(settled, entries))
    return recovered


def demand_within(entry: Entry, named: Sequence[Path] = ()) -> None:
    """Refuse a transaction in an environment's journal that refers to files elsewhere."""
    if why := _why_outside(entry, named):
        raise Refused(f"{entry.id} is refused: {why}")


def _why_outside(entry: Entry, named: Sequence[Path]) -> str:
    """Return why a transaction is not trusted, "" when it is.

    An environment that was unpacked or copied contains a journal that anyone may have written. It may only
    refer to files in the environment, or in a tree that the user `named`.
    """
    environment = entry.home.parent
    if not links.is_environment(environment):
        return ""
    roots = [os.path.realpath(root) for root in (environment, *named)]
    for path in _paths(entry):
        real = Path(os.path.realpath(Path(path).parent), Path(path).name)
        if not any(real.is_relative_to(root) for root in roots):
            return (
                f"the journal of {environment} names {path}, which is outside it; if that is in a tree "
                "of yours, name the tree with --verl, otherwise restore the file by hand from the "
                f"originals in {entry.folder}"
            )
    return ""


def _paths(entry: Entry) -> Iterator[str]:
    """Yield every file and folder that undoing a transaction may write."""
    for record in entry.changes:
        if isinstance(record, FileRecord):
            yield from (record.file, *record.folders)
        elif isinstance(record, BytecodeRecord):
            yield from record.roots
        elif isinstance(record, InstallRecord):
            yield record.copy
    yield from (folder.path for folder in entry.around)


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
        if entry.state in {"undone", "failed"} or _cannot_be_undone(entry):
            continue
        try:
            now = journal.entries(home)
            _demand_undoable(entry, now)
            undone.append(_over(_undo(entry, now), now))
        except (Refused, OSError) as error:
            refused.append(sentence(error))
    if refused:
        done = ", ".join(transaction.id for transaction in undone) or "nothing"
        raise Refused("\n".join([*refused, f"undone: {done}"]))
    return undone


def _undo(entry: Entry, entries: Sequence[Entry]) -> Entry:
    ours = _our_folders(entries)
    undoing = journal.mark(entry, "undoing") if entry.state == "applied" else entry
    try:
        left = _revert(undoing, ours)
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


def _demand_undoable(
    entry: Entry,
    entries: Sequence[Entry],
    undone_first: Sequence[Entry] = (),
    named: Sequence[Path] = (),
    *,
    keep_edits: bool = False,
) -> None:
    """Refuse before anything is written.

    All files must be on one of the two sides of their change, except with `keep_edits`.

    `undone_first` are later transactions that will be undone first.
    """
    if entry.state in {"undone", "failed"}:
        raise Refused(
            f"{entry.id} is already undone"
            if entry.state == "undone"
            else (
                f"{entry.id} failed, and its files were restored then; the effects of its commands cannot "
                "be undone"
            )
        )
    if why := _why_not_undoable(entry):
        raise Refused(f"{entry.id} {why}; name an older transaction to undo that one")
    demand_within(entry, named)
    problems = []
    before = {record.file for other in undone_first for _, record in other.files()}
    for index, record in entry.files():
        if record.file in before:
            continue
        newer = changed_again(entry, record, entries)
        if newer is not None and newer not in {other.id for other in undone_first}:
            raise Refused(
                f"{entry.id} cannot be undone before {newer}, which changed {record.file} again; undo "
                f"{newer} first"
            )
        if files.state(record) == "other":
            if not keep_edits:
                problems.append(files.changed_since(entry, index, record))
        elif record.kind == "private_folder":
            own = [file for other in (entry, *undone_first) for _, file in other.files()]
            known = {place for record in own for place in (record.file, *record.folders)}
            problems += [
                f"{path} is not the doctor's; move it away, then try again"
                for path in private_folder.added_by_others(record, known)
            ]
    for index, change in enumerate(entry.changes):
        if isinstance(change, InstallRecord):
            installation.demand_undoable(entry, index, change)
    if problems:
        raise Refused(f"{entry.id} was not undone, and nothing was changed: " + "\n".join(problems))


def _why_not_undoable(entry: Entry) -> str:
    if any(isinstance(record, RemovalRecord) for record in entry.changes):
        return "removed leftovers of dead jobs, which cannot be undone"
    if not _cannot_be_undone(entry):
        return ""
    ran = ", ".join(f"`{command.command_line(r)}`" for r in entry.changes if isinstance(r, CommandRecord))
    return f"ran {ran}, which cannot be undone"


def _cannot_be_undone(entry: Entry) -> bool:
    return all(isinstance(record, (CommandRecord, RemovalRecord)) for record in entry.changes)


def _did_what_stays(entry: Entry) -> bool:
    removed = any(isinstance(record, RemovalRecord) for record in entry.changes)
    return removed or command.was_run(entry)


def _redo(entry: Entry) -> str:
    """Redo a transaction after an undo that failed halfway. Return the result as text."""
    try:
        states = {index: files.state(record) for index, record in entry.files()}
        files.move(entry, [index for index, state in states.items() if state == "before"], "after")
        journal.mark(entry, "applied")
    except (OSError, Refused) as error:
        return f"it is half undone ({sentence(error)}); verl-doctor undo will finish it"
    if any(isinstance(record, BytecodeRecord) for record in entry.changes):
        return "all files are as they were, except for bytecode caches that were already removed"
    return "everything is as it was"


def _our_folders(entries: Sequence[Entry]) -> frozenset[str]:
    return frozenset(folder for entry in entries for _, record in entry.files() for folder in record.folders)
