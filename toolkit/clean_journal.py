"""Removing leftovers, and writing into the user's journal what was removed and why that was allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from verl_doctor.toolkit import journal, lock, removal_record
from verl_doctor.toolkit.leftover import Leftover, Outcome
from verl_doctor.toolkit.refused import said_by

_PATIENCE = 10.0  # seconds for another doctor to come to its end

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
            held.enter_context(lock.exclusive(home, _PATIENCE))
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
