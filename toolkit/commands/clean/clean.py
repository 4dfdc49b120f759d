"""The flow of `verl-doctor clean`: what is left over, its removal one by one, and a second look at what that set free."""

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
from verl_doctor.toolkit.engine.named_ray import clusters_asked
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
from verl_doctor.toolkit.system.errors import said_by

# In the order in which they are carried out: what a process holds can go only after it. Each module has a function
# `remove(leftovers, machine)` that proves each anew, removes it, and yields the `Outcome`s in the same order.
_REMOVERS: Mapping[type, str] = {
    KillActor: "actor",
    RemoveGroup: "actor",
    EndProcess: "process",
    RemovePath: "path",
}
_ORDER = tuple(_REMOVERS)
# What holds other leftovers: when one has gone, another look shows what that has set free.
_HOLDERS = frozenset({"process", "actor"})
_LOOKS = 3


@dataclass(frozen=True)
class Found:
    """Everything that is left over, what is kept, and what could not be looked at: (which facts, why)."""

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
    """How many things of one kind this machine has, of all jobs, and how many bytes they take."""

    kind: str
    number: int = 0
    size: int = 0


@dataclass(frozen=True)
class Run:
    """A job that was run between two looks: how it ended, and what the machine had `before` and `after` it.

    `appeared` is what came meanwhile and cannot be traced to the job.
    """

    command: tuple[str, ...]
    ended: Ended
    before: tuple[Total, ...] = ()
    after: tuple[Total, ...] = ()
    appeared: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class Cleaned:
    """What was found, and what became of it when it was to be removed. `outcomes` is None when nothing was to be.

    `unrecorded` is why the journal does not tell of it all, "" when it does. `run` is the job that has left it all, None when
    no job was run.
    """

    found: Found
    outcomes: tuple[Outcome, ...] | None = None
    unrecorded: str = ""
    run: Run | None = None

    @property
    def still_there(self) -> tuple[Outcome, ...]:
        """What was to be removed and was not."""
        return tuple(outcome for outcome in self.outcomes or () if outcome.state != "removed")

    def exit_code(self) -> int:
        """That of the job, if one was run; else 1 when something can be removed, or was not; 3 when some place could not be looked at; 0 otherwise."""
        if self.run is not None:
            return self.run.ended.code
        left = self.found.leftovers if self.outcomes is None else self.still_there
        return ExitCode.FAILED if left else ExitCode.COULD_NOT_CHECK if self.found.unknown else ExitCode.OK


def find(collectors: Iterable[Collector], collection: Facts, ray_address: str = "") -> Found:
    """Ask every fact that is about leftovers. When the Ray with this address tells nothing, that is one of what is unknown."""
    facts = [collector.fact for collector in collectors if issubclass(collector.fact, Leftovers)]
    collection.start(facts)
    answers = {fact: collection.get(fact) for fact in facts}
    known = [answer for answer in answers.values() if isinstance(answer, Leftovers)]
    requested = clusters_asked(ray_address, collection) if ray_address else None
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
    """Those of some kinds (all when there are none) that nobody has changed for `older_than` seconds."""
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
    look: Callable[[], Found], machine: Machine, home: Path, say: Callable[[str], None]
) -> Cleaned:
    """Remove what is found, then what that has set free. `home` is the journal that it is written down in. Raises Refused."""
    found = look()
    path.give_back(found.kept, machine)
    outcomes: list[Outcome] = []
    problems: list[str] = []
    due = found.leftovers
    for _ in range(_LOOKS):
        done = _remove(due, machine, home, problems, say)
        outcomes += done
        if not any(outcome.state == "removed" and outcome.leftover.kind in _HOLDERS for outcome in done):
            break
        again = look()
        tried = {(outcome.leftover.kind, outcome.leftover.name) for outcome in outcomes}
        due = tuple(leftover for leftover in again.leftovers if (leftover.kind, leftover.name) not in tried)
        found = Found((*found.leftovers, *due), again.kept, again.unknown)
    return Cleaned(found, tuple(outcomes), problems[0] if problems else "")


def _remove(
    due: Sequence[Leftover], machine: Machine, home: Path, problems: list[str], say: Callable[[str], None]
) -> list[Outcome]:
    """Remove them, each by the one who knows how."""
    ordered = sorted(due, key=lambda leftover: _ORDER.index(type(leftover.removal)))
    if not ordered:
        return []
    outcomes: list[Outcome] = []
    with recorded(home, ordered, problems) as note:
        for module, some in groupby(ordered, key=lambda leftover: _REMOVERS[type(leftover.removal)]):
            same = list(some)
            say(f"removing what is left over: {same[0].kind} {same[0].name}")
            remover = importlib.import_module(f"verl_doctor.toolkit.commands.clean.{module}")
            for outcome in remover.remove(same, machine):
                note(len(outcomes), outcome)
                outcomes.append(outcome)
    return outcomes


Note = Callable[[int, Outcome], None]


@contextmanager
def recorded(home: Path, leftovers: Sequence[Leftover], problems: list[str]) -> Iterator[Note]:
    """Note what becomes of each, by its place in `leftovers`.

    A full disk is why people clean up: a journal that cannot be written keeps nothing from being removed, and `problems` gets
    a sentence. Raises Refused when another doctor is at work.
    """
    entry = None
    with ExitStack() as held:
        try:
            journal.open_home(home)
            held.enter_context(lock.exclusive(home, lock.TIMEOUT))
            journal.tidy(home)
            entry = removal_record.begin(home, leftovers)
        except OSError as error:
            problems.append(said_by(error))

        def note(index: int, outcome: Outcome) -> None:
            try:
                if entry is not None:
                    removal_record.note(entry, index, outcome)
            except OSError as error:
                problems.append(said_by(error))

        yield note
        try:
            if entry is not None:
                journal.mark(entry, "applied")
        except OSError as error:
            problems.append(said_by(error))
