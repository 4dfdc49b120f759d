"""Whether a transaction can be undone, decided before anything is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.changes import command, files, installation, later_edits, links, private_folder
from verl_doctor.toolkit.changes.records import (
    BytecodeRecord,
    CommandRecord,
    Entry,
    FileRecord,
    InstallRecord,
    RemovalRecord,
)
from verl_doctor.toolkit.changes.transactions import changed_again
from verl_doctor.toolkit.system.errors import Refused


def demand_within(entry: Entry, named: Sequence[Path] = ()) -> None:
    """Refuse a transaction in an environment's journal that refers to files elsewhere."""
    if why := why_outside(entry, named):
        raise Refused(f"{entry.id} is refused: {why}")


def why_outside(entry: Entry, named: Sequence[Path]) -> str:
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


def demand_undoable(
    entry: Entry,
    entries: Sequence[Entry],
    undone_first: Sequence[Entry] = (),
    named: Sequence[Path] = (),
    *,
    together: Collection[str] = (),
    contents: dict[str, bytes | None] | None = None,
) -> None:
    """Refuse before anything is written.

    All files must be on one of the two sides of their change. `undone_first` are later transactions that will
    be undone first. With `contents`, what files will contain by then, the change may also be undone beside
    later edits. `together` are the transactions of its run, this one included; none if it is alone.
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
    if why := why_not_undoable(entry):
        raise Refused(f"{entry.id} {why}; name an older transaction to undo that one")
    demand_within(entry, named)
    problems = []
    edited = False
    before = {record.file for other in undone_first for _, record in other.files()}
    for index, record in entry.files():
        if record.file in before:
            continue
        newer = changed_again(entry, record, entries)
        if newer is not None and newer not in {other.id for other in undone_first}:
            raise Refused(
                f"{entry.id} was not undone: {newer}, which changed {record.file} again, was not"
                if newer in together
                else f"{entry.id} cannot be undone before {newer}, which changed {record.file} again; undo "
                f"{newer} first"
            )
        if files.state(record) == "other":
            if contents is None:
                problems.append(files.changed_since(entry, index, record))
                edited = True
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
    if contents is None:
        advice = later_edits.advice(entry, alone=not together) if edited else ""
        _refuse(f"{entry.id} was not undone, and nothing was changed", problems, advice)
        return
    foreseen = dict(contents)
    touched = list(later_edits.foresee(entry, foreseen))
    if entry.state == "applied":
        problems += [later_edits.why_not(entry, *place) for place in touched]
    _refuse(f"{entry.id} was not undone", problems)
    contents.update(foreseen)


def _refuse(outcome: str, problems: Sequence[str], advice: str = "") -> None:
    if problems:
        reasons = "\n".join(filter(None, [*problems, advice]))
        raise Refused(f"{outcome}: {reasons}")


def why_not_undoable(entry: Entry) -> str:
    """Return why nothing of a transaction can be undone, "" if something can."""
    if any(isinstance(record, RemovalRecord) for record in entry.changes):
        return "removed leftovers of dead jobs, which cannot be undone"
    if not cannot_be_undone(entry):
        return ""
    ran = ", ".join(f"`{command.command_line(r)}`" for r in entry.changes if isinstance(r, CommandRecord))
    return f"ran {ran}, which cannot be undone"


def cannot_be_undone(entry: Entry) -> bool:
    """Return whether a transaction only ran commands or removed leftovers."""
    return all(isinstance(record, (CommandRecord, RemovalRecord)) for record in entry.changes)
