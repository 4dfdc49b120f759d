"""How the time up to the first training step was spent: the phases of each process, as log lines report them.

A phase has its length from a line that reports it ("Loading weights took 12.3 seconds"), from two timed
lines, or from the silence that a line ends. Nothing is guessed: any other phase has no seconds. Times count
from the first timed line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from verl_doctor.toolkit.logs.timeline.phases import LOG_PHASES
from verl_doctor.toolkit.logs.timeline.speakers import kind_of

How = Literal["told", "between", "silence"]
"""The source of a length.

A line that reports the seconds, two timed lines, or the span from others' last line to the process's first.
"""

_COVERED = 0.5  # if other phases fill more than this share of a silence, it is none
_WORTH = 1.0  # seconds in total below which nothing is reported


@dataclass(frozen=True)
class Proof:
    """A line of a log: its file, its number, and its text."""

    source: str
    number: int
    words: str


@dataclass(frozen=True)
class Span:
    """One phase of one process.

    `seconds` is None if nothing reports them, `start` (since the first timed line) if none of its lines has a
    time. `is_open` means that its end is not in the log and it took at least this long. `parts` are those of
    a step, in seconds.
    """

    phase: str
    seconds: float | None
    start: float | None
    how: How
    proof: tuple[Proof, ...]
    is_open: bool = False
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def end(self) -> float | None:
        """When it ended."""
        return None if self.start is None or self.seconds is None else self.start + self.seconds


@dataclass(frozen=True)
class Worker:
    """One process: its name ("WorkerDict pid=12"), its node's address if known, and its ordered phases."""

    name: str
    node: str
    spans: tuple[Span, ...]

    @property
    def kind(self) -> str:
        """Its kind, without number and rank."""
        return kind_of(self.name)

    @property
    def outer(self) -> tuple[Span, ...]:
        """Its phases, except for those that are parts of others."""
        timed = {span.phase for span in self.spans if span.seconds is not None}
        return tuple(span for span in self.spans if not timed.intersection(LOG_PHASES[span.phase].within))

    @property
    def seconds(self) -> float:
        """The known total length of its phases."""
        return sum(span.seconds or 0 for span in self.outer)


@dataclass(frozen=True)
class Moment:
    """An event with a time: Ray was up, a step was logged."""

    what: str
    at: float | None
    proof: Proof


@dataclass(frozen=True)
class Timeline:
    """The start-up of one job.

    `seconds` is the time from the first line to the end of step 1, or to the last line without one.
    """

    workers: tuple[Worker, ...] = ()
    moments: tuple[Moment, ...] = ()
    seconds: float | None = None
    has_step: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_worth_showing(self) -> bool:
        """Whether two or more phases with a length are known."""
        known = [span.seconds for worker in self.workers for span in worker.outer if span.seconds]
        return len(known) >= 2 and sum(known) >= _WORTH

    @property
    def longest(self) -> tuple[Worker, Span] | None:
        """The longest phase and its process. A step and silence count only if there is nothing else."""
        every = [(worker, span) for worker in self.workers for span in worker.outer if span.seconds]
        informative = [pair for pair in every if pair[1].phase not in {"step", "silence"}]
        return max(informative or every, key=lambda pair: pair[1].seconds or 0, default=None)

    def together(self, phase: str) -> float:
        """Return how long a phase took in all processes; simultaneous time counts once."""
        spans = [span for worker in self.workers for span in worker.outer if span.phase == phase]
        return _union(spans) + sum(span.seconds or 0 for span in spans if span.start is None)


def _union(spans: Iterable[Span]) -> float:
    total, until = 0.0, float("-inf")
    for begin, end in sorted(
        (span.start, span.end) for span in spans if span.start is not None and span.end is not None
    ):
        total += max(end - max(begin, until), 0)
        until = max(until, end)
    return total


def without_covered(silences: Iterable[Span], spans: Sequence[Span]) -> list[Span]:
    """Return the silences during which no known phase was running."""
    return [
        silence
        for silence in silences
        if _union(piece for other in spans if (piece := _common(silence, other)) is not None)
        < _COVERED * (silence.seconds or 0)
    ]


def _common(span: Span, other: Span) -> Span | None:
    if span.start is None or span.end is None or other.start is None or other.end is None:
        return None
    start, end = max(span.start, other.start), min(span.end, other.end)
    return replace(span, start=start, seconds=end - start) if end > start else None
