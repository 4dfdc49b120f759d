"""Explains the time between two timed lines: processes that started and imported meanwhile, or silence."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.logs.timeline.phases import phase_reports
from verl_doctor.toolkit.logs.timeline.process import Process
from verl_doctor.toolkit.logs.timeline.speakers import DRIVER, UNNAMED, Key
from verl_doctor.toolkit.logs.timeline.timeline import Proof, Span

_SILENCES = 100  # silences that are kept
_SILENT = 1.0  # seconds without a line that are worth reporting
_BACKWARDS = 60  # a time that goes back by more seconds is another clock's; Ray delays lines by up to five
_UNNAMED = 3  # seconds during which a new process may print without its name
_SHELL = re.compile(r"\+{1,4} .*\b(?:python\d?(?:\.\d+)?|torchrun|accelerate|ray|srun|mpirun)\b")
_VLLM = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[")


@dataclass(frozen=True)
class At:
    """A timed line: its time, its process, its number, and its text after the labels."""

    time: float
    key: Key
    proof: Proof
    labels: str
    text: str


class Gaps:
    """The timed lines of one log, in order; `processes` are those seen so far."""

    def __init__(self, processes: Mapping[Key, Process]) -> None:
        self._processes = processes
        self.first: float | None = None
        self.end: float | None = None
        self.disagree = False
        self.last: At | None = None
        self._by_kind: dict[str, At] = {}
        self._paused: tuple[At, float] | None = None  # the last silence: the line before it, when it was over
        self._silences: list[tuple[float, int, Key, Span]] = []

    def passed(self, now: At, new: Sequence[Key]) -> Iterator[tuple[Key, Span]]:
        """Process the next line, before which the `new` processes first appeared.

        Yield how long they took to start.
        """
        last, new = self.last, [key for key in new if key != UNNAMED]
        self.first = now.time if self.first is None else self.first
        if last is not None and now.time < last.time - _BACKWARDS:
            self.disagree = True
        if last is not None and now.time > last.time:
            yield from self._started(new, now)
            if now.time - last.time >= _SILENT and not new:
                self._silent(last, now)
            if now.time - last.time > _UNNAMED:
                self._paused = (last, now.time)
        process = self._processes[now.key]
        process.has_vllm = process.has_vllm or bool(_VLLM.search(now.labels))
        if last is None or now.time >= last.time or self.disagree:
            self.last = self._by_kind[process.kind] = now
        self.end = now.time if self.end is None else max(self.end, now.time)

    def last_of(self, kind: str) -> Proof | None:
        """Return the last timed line of processes of this kind."""
        return self._by_kind[kind].proof if kind in self._by_kind else None

    def silences(self) -> Iterator[tuple[Key, Span]]:
        """Yield the longest silences, each with the process that ended it."""
        return ((key, span) for _, _, key, span in self._silences)

    def drop_silences_after(self, number: int) -> None:
        """Drop the silences that ended after this line, for which another reason is known."""
        self._silences = [
            silence for silence in self._silences if silence[1] <= number or silence[3].phase != "silence"
        ]

    def _started(self, new: Sequence[Key], now: At) -> Iterator[tuple[Key, Span]]:
        kinds = {self._processes[key].kind for key in new}
        for key in new:
            process = self._processes[key]
            before = self._before(process, now)
            if before is None or process.first is None:
                continue
            if len(kinds) > 1:
                # If several start between two times, their shares are unknown.
                yield key, Span("start", None, None, "silence", (process.first,))
            elif now.time > before.time:
                proof = (before.proof, process.first)
                yield key, Span("start", now.time - before.time, before.time, "silence", proof)

    def _before(self, process: Process, now: At) -> At | None:
        """Return the last line of a process that may have started this one.

        That is its parent, or any process of another kind.
        """
        parent = self._processes.get(process.parent) if process.parent is not None else None
        before = None if parent is None else self._by_kind.get(parent.kind)
        if before is not None:
            # The output of a process without a name is attributed to its parent.
            if self._paused is not None and before.time >= self._paused[1] >= now.time - _UNNAMED:
                return self._paused[0]
            return before
        # Unnamed lines are the driver's if it printed first; otherwise they may be any process's.
        default_name = "" if next(iter(self._processes)) == UNNAMED else DRIVER
        others = [at for kind, at in self._by_kind.items() if kind not in {process.kind, default_name}]
        return max(others, key=lambda other: other.time, default=None)

    def _silent(self, last: At, now: At) -> None:
        phase = next(
            (report.phase for report in phase_reports(now.text) if report.kind == "break"), "silence"
        )
        is_first_of_vllm = _VLLM.search(now.labels) and not self._processes[now.key].has_vllm
        if is_first_of_vllm or _SHELL.match(last.proof.words):
            phase = "start"
        span = Span(phase, now.time - last.time, last.time, "silence", (last.proof, now.proof))
        heapq.heappush(self._silences, (now.time - last.time, now.proof.number, now.key, span))
        if len(self._silences) > _SILENCES:
            heapq.heappop(self._silences)
