"""Collects a log's timeline while the log is read for another purpose: block by block, in bounded memory.

Lines are read individually until the first step is logged, or until there are too many for a start. After
that, only the beginning of another start of the same job matters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from verl_doctor.toolkit.logs.lines import Line, read_line
from verl_doctor.toolkit.logs.timeline.clock import Clock
from verl_doctor.toolkit.logs.timeline.gaps import At, Gaps
from verl_doctor.toolkit.logs.timeline.phases import (
    RESTART,
    STEP,
    parts_of_step,
    phase_report_offsets,
    phase_reports,
)
from verl_doctor.toolkit.logs.timeline.process import Process, until
from verl_doctor.toolkit.logs.timeline.speakers import (
    UNNAMED,
    Key,
    file_of,
    is_nameless,
    labels_of,
    printer_of,
)
from verl_doctor.toolkit.logs.timeline.timeline import Moment, Proof, Span

_LINES = 100_000  # of a start
_LONGEST = 65_536  # bytes of a line
_READ = 4096  # bytes of a line that are searched for names and texts
_HEADS = 10_000  # beginnings of lines that are remembered
_SPANS = 4000
_PROCESSES = 2000
_WORDS = 160  # characters of a line that are kept as its proof

# What precedes a line's text and identifies its process and time: processes, a clock to its seconds.
_HEAD = re.compile(
    rb"(?:[^()\n]{0,60}\([^()\n]{0,80}pid=\d{1,10}[^()\n]{0,40}\)(?:\x1b\[0m)?){0,3}"
    rb"(?:[^\n]{0,40}?\d\d:\d\d:\d\d|\s{0,12}\[?\s{0,12}\d{1,7}\.\d{1,6}\b|.{0,12}?\brank\d{1,5}\b)?",
    re.IGNORECASE,
)
_ACTOR = re.compile(r":actor_name:([\w.:<>-]{1,80})$")
_STARTED, _MADE = "Constructing CoreWorkerProcess.", "Actor creation task finished"
# Part of the environment that verl gives its workers by default, as it prints it.
_QUIET = "'VLLM_LOGGING_LEVEL': 'WARN'"


class TimelineReader:
    """One log. `take` receives its lines in their order; `timeline` joins the results."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._file = file_of(source)
        self.starts = 0
        self._begin()

    def _begin(self) -> None:
        self._clock = Clock()
        self._reads_all = not self._file.is_of_ray
        self._lines = 0
        self._heads: set[bytes] = set()
        self._passed_over: tuple[int, bytes] | None = None
        self._bare: tuple[int, Key] | None = None  # the last line that was only a name, and its process
        self._new: list[Key] = []  # first seen since the last timed line
        self.processes: dict[Key, Process] = {}
        self.gaps = Gaps(self.processes)
        self.spans: list[tuple[Key, Span]] = []
        self.moments: list[Moment] = []
        self.has_step = False
        self.has_trained = False  # a step was logged, with or without its times
        self.quiet: Proof | None = None  # the line that shows that vLLM's own output is disabled

    @property
    def is_elapsed(self) -> bool:
        """Whether its times are its own."""
        return self._clock.is_elapsed

    @property
    def is_cut(self) -> bool:
        """Whether it was too long to be read to its first step."""
        return self._lines >= _LINES and not self.has_step

    @property
    def trains_from(self) -> float:
        """The line in which the first step began; infinite if none has begun."""
        begun = (process.begun.get("step") for process in self.processes.values())
        return min((begin[1].number for begin in begun if begin is not None), default=math.inf)

    def take(self, number: int, block: bytes) -> None:
        """Read the next lines, the first of which has this number. The last may lack its line end."""
        if self._file.is_of_ray:
            return
        at = 0
        reporting = phase_report_offsets(block) if self._reads_all else frozenset()
        while at < len(block):
            if self._reads_all:
                end = block.find(b"\n", at)
                end = len(block) if end < 0 else end
                self._line(number, block[at : min(end, at + _LONGEST)], reports=at in reporting)
                at, number = end + 1, number + 1
                continue
            found = block.find(RESTART, at)
            if found < 0:
                return
            begin = max(block.rfind(b"\n", at, found) + 1, at)
            at, number = begin, number + block.count(b"\n", at, begin)
            self._begin()
            self.starts += 1
            reporting = phase_report_offsets(block)

    def _line(self, number: int, raw: bytes, *, reports: bool) -> None:
        self._lines += 1
        self._reads_all = self._lines < _LINES
        if not reports and self._is_known(raw):
            self._passed_over = (number, raw)  # of several such lines, only the last matters
            return
        if self._passed_over is not None:
            self._read(*self._passed_over)
            self._passed_over = None
        self._read(number, raw)
        if b"step:" in raw and (match := STEP.search(raw)):
            self.has_trained |= int(match[1]) > 0  # verl logs a validation before the first step
            if (parts := parts_of_step(raw)).get("step"):
                self._step(number, int(match[1]), parts, raw)

    def _is_known(self, raw: bytes) -> bool:
        """Return whether a line of this process in this second was already read."""
        head = _HEAD.match(raw)
        first_bytes = head[0] if head else b""
        if first_bytes in self._heads:
            return True
        if len(self._heads) >= _HEADS:
            self._heads.clear()
        self._heads.add(first_bytes)
        return False

    def _read(self, number: int, raw: bytes) -> None:
        elapsed, text = self._clock.split_elapsed(raw[:_READ].decode("utf-8", "replace").replace("\0", ""))
        for line in read_line(number, text):
            if not line.written.strip():
                continue
            labels = labels_of(line)
            time = elapsed if elapsed is not None else self._clock.read(labels, line.text)
            if self._file.core:
                self._started(line, time)
            else:
                self._count(line, labels, time)

    def _count(self, line: Line, labels: str, time: float | None) -> None:
        key = self._known(line, labels)
        if key is None:
            return
        process, proof = self.processes[key], self._proof(line)
        if self._file.worker and (match := _ACTOR.match(line.text)):
            process.name = f"{match[1]} {self._file.worker.partition(' ')[2]}"
            return
        if process.first is None:
            process.first = proof
            self._new.append(key)
        if time is not None:
            self._add(self.gaps.passed(At(time, key, proof, labels, line.text), self._new))
            self._new = []
        if _QUIET in line.text:
            self.quiet = proof
        found = phase_reports(line.text)
        self.moments += [
            Moment("Ray is up", time, proof)
            for report in found
            if (report.phase, report.kind) == ("ray", "end")
        ]
        self._add((key, span) for span in process.advance(found, time, proof))

    def _known(self, line: Line, labels: str) -> Key | None:
        """Return the process of a line; a new process is registered, unless there are too many."""
        printer = printer_of(line, labels, self._file.worker)
        key, bare = printer.key, self._bare
        if key == UNNAMED and bare is not None and bare[0] == line.number - 1:
            key = bare[1]  # a bar starts a new line after the name of its process
        self._bare = (line.number, key) if key != UNNAMED and not line.text.strip() else None
        process = self.processes.get(key)
        if process is None and len(self.processes) < _PROCESSES:
            self.processes[key] = Process(printer.name, printer.node, printer.parent)
        elif process is not None and is_nameless(process.name) and key == printer.key:
            process.name = printer.name
        return key if key in self.processes else None

    def _started(self, line: Line, time: float | None) -> None:
        """Read Ray's own log of a worker: when the process began, and when its actor was created.

        Creating the actor imports what it needs.
        """
        if time is None or not (_STARTED in line.text or _MADE in line.text):
            return
        key, proof = ("", self._file.core), self._proof(line)
        process = self.processes.setdefault(key, Process(f"worker pid={self._file.core}"))
        self._add(self.gaps.passed(At(time, key, proof, "", ""), ()))
        if _STARTED in line.text:
            process.begun["start"] = (time, proof)
        else:
            self._add((key, span) for span in process.ended("start", time, proof))
            self._reads_all = False

    def _step(self, number: int, step: int, parts: dict[str, float], raw: bytes) -> None:
        """Record a logged step: the start is over."""
        text = self._clock.without(raw[:_READ].decode("utf-8", "replace"))
        line = next(iter(read_line(number, text)))
        key, proof, last = self._known(line, labels_of(line)), self._proof(line), self.gaps.last
        if key is None:
            return
        time = last.time if last is not None and last.proof.number == number else None
        _, began = self.processes[key].begun.pop("step", (None, proof))
        self.gaps.drop_silences_after(began.number)
        if time is not None:
            self.gaps.end = time
        span = until("step", parts.pop("step"), time, proof)
        self._add([(key, replace(span, parts=tuple(parts.items())))])
        self.moments.append(Moment(f"step {step} was logged", time, proof))
        self.has_step, self.has_trained, self._reads_all = True, True, False

    def _proof(self, line: Line) -> Proof:
        return Proof(self._source, line.number, line.written[:_WORDS])

    def _add(self, spans: Iterable[tuple[Key, Span]]) -> None:
        self.spans += list(spans)[: max(_SPANS - len(self.spans), 0)]

    def close(self) -> None:
        """End the log: what has begun stays open."""
        is_over = self.has_step or bool(self._file.core)
        for key, process in self.processes.items():
            last = self.gaps.last_of(process.kind)
            self._add((key, span) for span in process.left(self.gaps.end, last, is_over=is_over))
