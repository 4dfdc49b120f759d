"""Finds the recorded changes that concern a target. The journal in the user's folder serves many trees."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.changes.apply import State, Transaction
from verl_doctor.toolkit.collectors.installed.interpreter import interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, verl_trees
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target, journal_homes

Name = tuple[Path, str]
"""A transaction: the folder of its journal, and its number there."""

_OVER = frozenset({"undone", "failed"})
# A run whose parts have different states has the first of these.
_STATES: tuple[State, ...] = ("in progress", "interrupted", "applied", "undone", "failed")


@dataclass(frozen=True)
class Recorded:
    """Changes made and undone together, and the journal that holds the first part.

    `here` is whether it concerns the target. `parts` are its transactions, in order: one run of the doctor
    may make several changes in turn, to files that belong to several journals. `transaction` combines them
    under the number of the first.
    """

    home: Path
    transaction: Transaction
    here: bool
    parts: tuple[Name, ...] = ()

    def is_called(self, number: int) -> bool:
        """Return whether one of its parts has this number."""
        return any(int(part) == number for _, part in self.parts)

    @property
    def name(self) -> str:
        """The name under which `undo` finds it for any target."""
        return f"{self.home}/{self.transaction.id}"

    @property
    def order(self) -> tuple[str, str, str]:
        """A sort key in order of time, across journals."""
        return self.transaction.time, str(self.home), self.transaction.id


@dataclass(frozen=True)
class History:
    """Everything in a target's journals, oldest first, and why some journals are unreadable."""

    changes: tuple[Recorded, ...]
    damaged: tuple[str, ...] = ()

    @property
    def here(self) -> tuple[Recorded, ...]:
        """The changes that concern the target."""
        return tuple(recorded for recorded in self.changes if recorded.here)

    @property
    def elsewhere(self) -> tuple[Recorded, ...]:
        """The changes of other targets."""
        return tuple(recorded for recorded in self.changes if not recorded.here)

    def standing(self, *, everything: bool) -> tuple[Recorded, ...]:
        """Return the target's changes that can be undone, newest first: `everything`, or only the last.

        They can still be undone.
        """
        found = [recorded for recorded in reversed(self.here) if recorded.transaction.state not in _OVER]
        if not everything:
            return tuple(found[:1])
        return tuple(
            recorded for recorded in found if any(change.paths for change in recorded.transaction.changes)
        )


def history(target: Target, machine: Machine) -> History:
    """Read the journals of the target's environment and of the user."""
    own, _ = homes = journal_homes(target)
    roots = [os.path.realpath(root) for root in _roots(target, machine)]
    beside = "" if target.arguments else os.path.realpath(machine.cwd)
    damaged: list[str] = []

    def read(home: Path) -> tuple[Transaction, ...]:
        try:
            return apply.history(home)
        except apply.Refused as error:
            damaged.append(str(error))
            return ()

    found = [(home, transaction) for home in dict.fromkeys(homes) for transaction in read(home)]
    runs = {transaction.run.token: transaction.run for _, transaction in found if transaction.run.token}
    others = dict.fromkeys(Path(home) for run in runs.values() for home in run.homes)
    found += _parts((home for home in others if home not in homes), runs, read)

    def is_here(home: Path, transaction: Transaction) -> bool:
        # Commands name no files, and environment files may be anywhere. Both concern their journal's
        # environment.
        if home == own and os.path.realpath(target.prefix) in roots:
            return True
        paths = [path for change in transaction.changes for path in change.paths]
        return transaction.run.environment == os.path.realpath(target.prefix) or any(
            _is_below(path, roots) or _lies_in(path, beside) for path in paths
        )

    changes = [(home, transaction, is_here(home, transaction)) for home, transaction in found]
    return History(tuple(sorted(_runs(changes), key=lambda recorded: recorded.order)), tuple(damaged))


def _runs(found: Iterable[tuple[Path, Transaction, bool]]) -> Iterator[Recorded]:
    """Group the parts of each run. A transaction without a run is a group by itself."""
    groups: dict[object, list[tuple[Path, Transaction, bool]]] = {}
    for run in found:
        home, transaction, _ = run
        groups.setdefault(transaction.run.token or (home, transaction.id), []).append(run)
    for group in groups.values():
        parts = sorted(group, key=lambda part: (int(part[1].id), part[1].time))
        yield Recorded(
            parts[0][0],
            as_one([transaction for _, transaction, _ in parts]),
            any(here for _, _, here in parts),
            tuple((home, transaction.id) for home, transaction, _ in parts),
        )


def as_one(parts: Sequence[Transaction]) -> Transaction:
    """Combine the transactions of one run, in order. If several changed the same file, the last counts."""
    first = parts[0]
    changes = {
        (change.path, change.kind if not change.paths else ""): change
        for part in parts
        for change in part.changes
    }
    states = {part.state for part in parts}
    return replace(
        first,
        fix=", ".join(dict.fromkeys(part.fix for part in parts)),
        code=", ".join(dict.fromkeys(part.code for part in parts)),
        state=next(state for state in _STATES if state in states),
        changes=tuple(changes.values()),
    )


def parts_of(home: Path, number: str) -> tuple[Name, ...]:
    """Return the parts of the run that contains the transaction with this number in a journal.

    Raises Refused.
    """
    found = [
        transaction
        for transaction in apply.history(home)
        if number.isdecimal() and int(transaction.id) == int(number[:18])
    ]
    if not found or not found[0].run.token:
        return ((home, number),)
    run = found[0].run
    every = _parts(dict.fromkeys((home, *map(Path, run.homes))), {run.token}, apply.history)
    return tuple(
        (place, transaction.id) for place, transaction in sorted(every, key=lambda part: int(part[1].id))
    )


def _parts(
    homes: Iterable[Path], tokens: Container[str], read: Callable[[Path], Iterable[Transaction]]
) -> Iterator[tuple[Path, Transaction]]:
    """Yield the transactions of these runs from journals, each with its journal."""
    for home in homes:
        yield from ((home, transaction) for transaction in read(home) if transaction.run.token in tokens)


def undo_runs(
    runs: Iterable[Sequence[Name]], named: Sequence[Path] = (), *, keep_edits: bool = False
) -> tuple[list[Transaction], list[str]]:
    """Undo these runs. Return what was undone, and why others were not: a refusal does not stop the rest.

    `named` are the trees that the user names. With `keep_edits`, edits of the files since then are kept.
    """
    done: list[Transaction] = []
    refused: list[str] = []
    for parts in runs:
        try:
            undone: Sequence[Transaction] = apply.undo_together(parts, named=named, keep_edits=keep_edits)
        except apply.PartlyUndoneError as error:
            refused.append(str(error))
            undone = error.undone
        except apply.Refused as error:
            refused.append(str(error))
            continue
        if undone:
            done.append(as_one(sorted(undone, key=lambda part: (int(part.id), part.time))))
    return done, refused


def undone_lines(transaction: Transaction) -> Iterator[str]:
    """Describe what was undone, and the current state of each of its files."""
    yield f"undone: repair {transaction.id} ({transaction.code}), applied {moment(transaction.time)}"
    yield from (f"  {change.path}: {change.now}" for change in transaction.changes)


def moment(time: str) -> str:
    """Format the time of a transaction to the minute: "2026-11-28 22:18 UTC"."""
    return f"{time[:16].replace('T', ' ')} UTC"


def _roots(target: Target, machine: Machine) -> Iterator[Path]:
    """Yield the folders whose files belong to the target: the given verl, or the environment and its verl."""
    if target.verl is not None:
        yield target.verl
    if target.chosen_by == "--python" or target.verl is None:
        own, outside = journal_homes(target)
        if own != outside:  # an interpreter such as /usr/bin/python3 has no private folder
            yield target.prefix
        trees = Collection((interpreter, verl_trees), {Machine: machine, Target: target}).get(VerlTrees)
        if not isinstance(trees, Unknown):
            yield Path(trees.imported.folder)


def _is_below(path: str, roots: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(root) for root in roots)


def _lies_in(path: str, folder: str) -> bool:
    """Return whether a path is directly in the folder. Deeper paths may belong to anything."""
    return str(Path(path).parent) == folder
