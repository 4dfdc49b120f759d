"""The flow of `verl-doctor clean`: find leftovers, remove each, and look again for what that released."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from verl_doctor.toolkit.changes import journal, lock, removal_record
from verl_doctor.toolkit.collectors.leftovers.actors import LeftActors
from verl_doctor.toolkit.commands.clean import path
from verl_doctor.toolkit.commands.clean.job import Ended
from verl_doctor.toolkit.engine.collect import Collection as Facts
from verl_doctor.toolkit.engine.named_ray import queried_clusters
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.facts import Absent, Collector, Unknown
from verl_doctor.toolkit.leftover import (
    EndProcess,
    Kept,
    KillActor,
    Kind,
    Leftover,
    Leftovers,
    Outcome,
    RemoveGroup,
    RemovePath,
)
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.errors import os_error_text

# In the order of removal: something held by a process can go only after it. Each module has a function
# `remove(leftovers, machine)` that proves each leftover again, removes it, and yields the `Outcome`s in the
# same order.
_REMOVERS: Mapping[type, str] = {
    KillActor: "actor",
    RemoveGroup: "actor",
    EndProcess: "process",
    RemovePath: "path",
}
_ORDER = tuple(_REMOVERS)
# Kinds that hold other leftovers: after their removal a second look shows what was released.
_HOLDERS = frozenset({"process", "actor"})
_LOOKS = 3


@dataclass(frozen=True)
class Found:
    """All leftovers, what is kept, and what could not be examined: (which facts, why)."""

    leftovers: tuple[Leftover, ...] = ()
    kept: tuple[Kept, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()

    @property
    def everything(self) -> tuple[Leftover | Kept, ...]:
        """What is left over, and what is kept."""
        entries: list[Leftover | Kept] = [*self.leftovers, *self.kept]
        return tuple(entries)


@dataclass(frozen=True)
class Total:
    """How many items of one kind this machine has, of all jobs, and their size in bytes."""

    kind: str
    number: int = 0
    size: int = 0


@dataclass(frozen=True)
class Run:
    """A job that was run between two looks: how it ended, and the totals `before` and `after` it.

    The totals are those of the machine.

    `appeared` came meanwhile and cannot be traced to the job.
    """

    command: tuple[str, ...]
    ended: Ended
    before: tuple[Total, ...] = ()
    after: tuple[Total, ...] = ()
    appeared: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class Cleaned:
    """What was found, and the outcomes of its removal; `outcomes` is None if nothing was to be removed.

    `unrecorded` is why the journal is incomplete, "" if it is complete. `run` is the job that left it all,
    None if no job was run.
    """

    found: Found
    outcomes: tuple[Outcome, ...] | None = None
    unrecorded: str = ""
    run: Run | None = None

    @property
    def still_there(self) -> tuple[Outcome, ...]:
        """What should have been removed but was not."""
        return tuple(outcome for outcome in self.outcomes or () if outcome.state != "removed")

    def exit_code(self) -> int:
        """Return the exit code.

        It is the job's if one was run; else 1 if something can be or was not removed, 3 if something could
        not be examined, 0 otherwise.
        """
        if self.run is not None:
            return self.run.ended.code
        left = self.found.leftovers if self.outcomes is None else self.still_there
        return ExitCode.FAILED if left else ExitCode.COULD_NOT_CHECK if self.found.unknown else ExitCode.OK


def find(collectors: Iterable[Collector], collection: Facts, ray_address: str = "") -> Found:
    """Collect every fact about leftovers. If the Ray at this address cannot be read, it counts as unknown."""
    facts = [collector.fact for collector in collectors if issubclass(collector.fact, Leftovers)]
    collection.start(facts)
    answers = {fact: collection.get(fact) for fact in facts}
    known = [answer for answer in answers.values() if isinstance(answer, Leftovers)]
    requested = queried_clusters(ray_address, collection) if ray_address else None
    if isinstance(requested, Unknown):
        answers[LeftActors] = requested
    return Found(
        tuple(leftover for answer in known for leftover in answer.found),
        tuple(kept_entry for answer in known for kept_entry in answer.kept),
        tuple(
            (fact.__name__, answer.reason)
            for fact, answer in answers.items()
            if isinstance(answer, Unknown) and not isinstance(answer, Absent)
        ),
    )


def chosen(found: Found, kinds: Collection[Kind], older_than: float) -> Found:
    """Return leftovers of these kinds (all if none are given) unchanged for `older_than` seconds."""
    of_kind = [leftover for leftover in found.leftovers if not kinds or leftover.kind in kinds]
    young = [
        leftover for leftover in of_kind if older_than and (leftover.age is None or leftover.age < older_than)
    ]
    return replace(
        found,
        leftovers=tuple(leftover for leftover in of_kind if leftover not in young),
        kept=(
            *(kept_entry for kept_entry in found.kept if not kinds or kept_entry.kind in kinds),
            *(
                Kept(
                    leftover.kind,
                    leftover.name,
                    "it is younger than --older-than",
                    leftover.size,
                    leftover.store,
                )
                for leftover in young
            ),
        ),
    )


def remove_all(
    look: Callable[[], Found], machine: Machine, home: Path, show: Callable[[str], None]
) -> Cleaned:
    """Remove what was found, then what that released.

    `home` has the journal that records it. Raises Refused.
    """
    found = look()
    path.give_back(found.kept, machine)
    outcomes: list[Outcome] = []
    problems: list[str] = []
    due = found.leftovers
    for _ in range(_LOOKS):
        done = _remove(due, machine, home, problems, show)
        outcomes += done
        if not any(outcome.state == "removed" and outcome.leftover.kind in _HOLDERS for outcome in done):
            break
        again = look()
        tried = {(outcome.leftover.kind, outcome.leftover.name) for outcome in outcomes}
        due = tuple(leftover for leftover in again.leftovers if (leftover.kind, leftover.name) not in tried)
        found = Found((*found.leftovers, *due), again.kept, again.unknown)
    return Cleaned(found, tuple(outcomes), problems[0] if problems else "")


def _remove(
    due: Sequence[Leftover], machine: Machine, home: Path, problems: list[str], show: Callable[[str], None]
) -> list[Outcome]:
    """Remove the leftovers, each with the module for its kind."""
    ordered = sorted(due, key=lambda leftover: _ORDER.index(type(leftover.removal)))
    if not ordered:
        return []
    outcomes: list[Outcome] = []
    with recorded(home, ordered, problems) as note:
        for module, some in groupby(ordered, key=lambda leftover: _REMOVERS[type(leftover.removal)]):
            same = list(some)
            show(f"removing leftovers: {same[0].kind} {same[0].name}")
            remover = importlib.import_module(f"verl_doctor.toolkit.commands.clean.{module}")
            for outcome in remover.remove(same, machine):
                note(len(outcomes), outcome)
                outcomes.append(outcome)
    return outcomes


Note = Callable[[int, Outcome], None]


@contextmanager
def recorded(home: Path, leftovers: Sequence[Leftover], problems: list[str]) -> Iterator[Note]:
    """Record the outcome of each, by its index in `leftovers`.

    People clean up because a disk is full, so a journal that cannot be written does not prevent removal;
    `problems` gets a sentence. Raises Refused if another doctor is at work.
    """
    entry = None
    with ExitStack() as held:
        try:
            journal.open_home(home)
            held.enter_context(lock.exclusive(home, lock.TIMEOUT))
            journal.tidy(home)
            entry = removal_record.begin(home, leftovers)
        except OSError as error:
            problems.append(os_error_text(error))

        def note(index: int, outcome: Outcome) -> None:
            try:
                if entry is not None:
                    removal_record.note(entry, index, outcome)
            except OSError as error:
                problems.append(os_error_text(error))

        yield note
        try:
            if entry is not None:
                journal.mark(entry, "applied")
        except OSError as error:
            problems.append(os_error_text(error))
