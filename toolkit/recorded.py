"""Which of the recorded changes concern a target. The journal in the user's folder serves many trees."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import apply
from verl_doctor.toolkit.apply import Transaction
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.fact_interpreter import interpreter
from verl_doctor.toolkit.fact_trees import VerlTrees, verl_trees
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target, journal_homes


@dataclass(frozen=True)
class Recorded:
    """One transaction and the journal that holds it. `here` says whether it concerns the target."""

    home: Path
    transaction: Transaction
    here: bool

    @property
    def name(self) -> str:
        """The name under which `undo` finds it whatever the target is."""
        return f"{self.home}/{self.transaction.id}"

    @property
    def order(self) -> tuple[str, str, str]:
        """What was done later sorts later, also over several journals."""
        return self.transaction.time, str(self.home), self.transaction.id


@dataclass(frozen=True)
class History:
    """All that the journals of a target tell, oldest first, and what is wrong with those that cannot be read."""

    changes: tuple[Recorded, ...]
    damaged: tuple[str, ...] = ()

    @property
    def here(self) -> tuple[Recorded, ...]:
        """What concerns the target."""
        return tuple(recorded for recorded in self.changes if recorded.here)

    @property
    def elsewhere(self) -> tuple[Recorded, ...]:
        """What other targets were changed by."""
        return tuple(recorded for recorded in self.changes if not recorded.here)

    def standing(self, *, everything: bool) -> tuple[Recorded, ...]:
        """What of the target's changes stands and could be taken back, newest first: `everything`, or the last alone."""
        found = [one for one in reversed(self.here) if one.transaction.state not in {"undone", "failed"}]
        if not everything:
            return tuple(found[:1])
        return tuple(one for one in found if any(change.paths for change in one.transaction.changes))


def history(target: Target, machine: Machine) -> History:
    """Read the journals of the target's environment and of the user."""
    own, _ = homes = journal_homes(target)
    roots = [os.path.realpath(root) for root in _roots(target, machine)]
    beside = "" if target.arguments else os.path.realpath(machine.cwd)
    changes, damaged = [], []
    for home in dict.fromkeys(homes):
        try:
            found = apply.history(home)
        except apply.Refused as error:
            damaged.append(str(error))
            continue
        is_targets = home == own and os.path.realpath(target.prefix) in roots
        for transaction in found:
            paths = [path for change in transaction.changes for path in change.paths]
            # Commands name no files, and files of variables lie anywhere: both are about their journal's environment.
            here = is_targets or any(_is_below(path, roots) or _lies_in(path, beside) for path in paths)
            changes.append(Recorded(home, transaction, here))
    return History(tuple(sorted(changes, key=lambda recorded: recorded.order)), tuple(damaged))


def take_back(names: Iterable[tuple[Path, str]]) -> tuple[list[Transaction], list[str]]:
    """Undo these, each by its journal and number: what is undone, and why others are not. One that is refused does not keep the rest."""
    done: list[Transaction] = []
    refused: list[str] = []
    for home, number in names:
        try:
            done += apply.undo(home, number)
        except apply.Refused as error:  # noqa: PERF203 - each by itself
            refused.append(str(error))
    return done, refused


def undone_words(transaction: Transaction) -> Iterator[str]:
    """What was taken back, and how each of its files is now."""
    about = f"{transaction.fix} for {transaction.code} of {transaction.time}"
    yield f"undone {transaction.id}: {about}"
    yield from (f"  {change.path}: {change.now}" for change in transaction.changes)


def _roots(target: Target, machine: Machine) -> Iterator[Path]:
    """Folders whose files belong to the target: the verl that was named; otherwise the environment and the verl of it."""
    if target.verl is not None:
        yield target.verl
    if target.chosen_by == "--python" or target.verl is None:
        own, outside = journal_homes(target)
        if own != outside:  # an interpreter such as /usr/bin/python3 has no folder of its own
            yield target.prefix
        trees = Collection((interpreter, verl_trees), {Machine: machine, Target: target}).get(VerlTrees)
        if not isinstance(trees, Unknown):
            yield Path(trees.imported.folder)


def _is_below(path: str, roots: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(root) for root in roots)


def _lies_in(path: str, folder: str) -> bool:
    """Whether it lies directly where the user stands. What lies deeper may belong to anything."""
    return str(Path(path).parent) == folder
