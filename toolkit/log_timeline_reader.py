"""Listening to a log for its time line while it is read for other reasons: block by block, with a bounded memory.

Lines count one by one until the first step was logged, or so many were read that this is no start any more. After that only the
beginning of another start of the same job is looked for.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from verl_doctor.toolkit.log_clock import Clock
from verl_doctor.toolkit.log_lines import Line, read_line
from verl_doctor.toolkit.log_phases import PHASES, RESTART, STEP, parts_of_step, telling_lines, tellings
from verl_doctor.toolkit.log_timeline import (
    DRIVER,
    Moment,
    Proof,
    Span,
    Timeline,
    Worker,
    kind_of,
    without_covered,
)
from verl_doctor.toolkit.text import counted

_LINES = 100_000  # of a start
_LONGEST = 65_536  # bytes of a line
_HEADS = 10_000  # beginnings of lines that are remembered
_SPANS = 4000  # of a log
_WORKERS = 2000
_SILENCES = 100
_SILENT = 1.0  # seconds without a line that are worth a word
_BACKWARDS = (
    60  # seconds by which a clock must go back for it to be another clock; Ray holds lines back for five
)
_NAMELESS = 3  # seconds for which a new process may speak without its name
_SMALL = 0.04  # of the whole: a shorter silence is not worth a word
_LABELS = 200  # characters in which names are looked for
_WORDS = 160  # characters of a line that are kept as its proof

# What stands before the words of a line as far as it says who speaks and when: processes, a clock to its seconds.
_HEAD = re.compile(
    rb"(?:[^()\n]{0,60}\([^()\n]{0,80}pid=\d+[^()\n]{0,40}\)(?:\x1b\[0m)?){0,3}"
    rb"(?:[^\n]{0,40}?\d\d:\d\d:\d\d|\s{0,12}\[?\s{0,12}\d{1,7}\.\d{1,6}\b|.{0,12}?\brank\d{1,5}\b)?",
    re.IGNORECASE,
)
_NODE = re.compile(r"\bip=([\w.:-]{2,64})")
_NAMED = re.compile(r"\((?P<who>[^()]{0,80}(?:\([\w-]*\))?[^()]{0,20}\b(?:pid|PID)=\d+)[^()]*\)")
_PID = re.compile(r"\bpid=(\d{1,10})$", re.IGNORECASE)
_SHELL = re.compile(r"\+{1,4} .*\b(?:python\d?(?:\.\d+)?|torchrun|accelerate|ray|srun|mpirun)\b")
_TORCH = re.compile(
    r"[DIWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} (\d{1,10}) torch/"
)  # torch's loggers in Python tell their process
_VLLM = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[")
# Names of Ray's files in session_*/logs: of a worker, with its number; of what Ray itself writes.
_OF_WORKER = re.compile(r"worker-[0-9a-f]{8,64}-[0-9a-f]{8}-(\d{1,10})\.(?:out|err)")
_OF_CORE = re.compile(r"python-core-(?:worker|driver)-\w+?_(\d{1,10})\.log")
_OF_RAY = re.compile(
    r"(?:raylet|gcs_server|dashboard|monitor|log_monitor|runtime_env|debug_state|ray_client|agent-)"
)
_ACTOR = re.compile(r":actor_name:([\w.:<>-]{1,80})$")
_QUIET = (
    "'VLLM_LOGGING_LEVEL': 'WARN'"  # what verl gives its workers unless it is told otherwise, as it prints it
)
_VLLMS = frozenset({"weights", "engine", "compile", "capture", "shards"})
_BORN, _MADE = "Constructing CoreWorkerProcess.", "Actor creation task finished"

Key = tuple[str, str]
_DRIVER: Key = ("", DRIVER)


@dataclass
class _Who:
    """One process: its name, its node, and what of its story is not told to the end yet."""

    name: str
    node: str
    parent: Key | None
    first: Proof | None = None
    open: dict[str, tuple[float | None, Proof]] = field(default_factory=dict)
    bars: dict[str, tuple[float, float | None, bool, Proof]] = field(default_factory=dict)
    spoke_vllm: bool = False

    @property
    def kind(self) -> str:
        return kind_of(self.name)


@dataclass(frozen=True)
class _At:
    """A line with a time: when, who, which."""

    time: float
    key: Key
    proof: Proof


class TimelineReader:
    """One log. `take` is given its lines in their order; `timeline` makes of it what was heard."""

    def __init__(self, source: str) -> None:
        self._source = source
        name = source.rpartition("/")[2]
        match = _OF_WORKER.match(name)
        self._owner = f"worker pid={match[1]}" if match else ""
        core = _OF_CORE.match(name)
        self._core = core[1] if core else ""
        self._is_deaf = not core and bool(_OF_RAY.match(name))
        self.starts = 0
        self._begin()

    def _begin(self) -> None:
        self._clock = Clock()
        self._budget = _LINES
        self._heads: set[bytes] = set()
        self._passed_over: tuple[int, bytes] | None = None
        self._named: tuple[int, Key] | None = None  # the line that has only a name, and whose
        self._listens = not self._is_deaf
        self.workers: dict[Key, _Who] = {}
        self.spans: list[tuple[Key, Span]] = []
        self.moments: list[Moment] = []
        self.silences: list[tuple[float, int, Key, Span]] = []
        self.first: float | None = None
        self.end: float | None = None
        self.has_step = False
        self.disagree = False
        self.quiet: Proof | None = None  # the line that says that vLLM's own words are left out
        self._last: _At | None = None
        self._by_kind: dict[str, _At] = {}
        self._new: list[Key] = []
        self._paused: tuple[_At, float] | None = (
            None  # the last silence: who spoke before it, when it was over
        )

    @property
    def is_elapsed(self) -> bool:
        """Whether its times are its own."""
        return self._clock.is_elapsed

    def take(self, number: int, block: bytes) -> None:
        """Read the next lines, the first of which has this number. The last may lack its end."""
        at = 0
        telling = telling_lines(block) if self._listens and not self._is_deaf else frozenset()
        while at < len(block) and not self._is_deaf:
            if self._listens:
                end = block.find(b"\n", at)
                end = len(block) if end < 0 else end
                self._line(number, block[at : min(end, at + _LONGEST)], tells=at in telling)
                at, number = end + 1, number + 1
                continue
            found = block.find(RESTART, at)
            if found < 0:
                return
            begin = max(block.rfind(b"\n", at, found) + 1, at)
            at, number = begin, number + block.count(b"\n", at, begin)
            self._begin()
            self.starts += 1
            telling = telling_lines(block)

    def _line(self, number: int, raw: bytes, *, tells: bool) -> None:
        self._budget -= 1
        self._listens = self._budget > 0
        if not tells:
            head = _HEAD.match(raw)
            said = head[0] if head else b""
            if said in self._heads:
                # Its process and its second are known: only the last such line before another matters.
                self._passed_over = (number, raw)
                return
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            self._heads.add(said)
        if self._passed_over is not None:
            self._read(*self._passed_over)
            self._passed_over = None
        self._read(number, raw)
        if b"step:" in raw and (match := STEP.search(raw)) and (parts := parts_of_step(raw)).get("step"):
            self._step(number, int(match[1]), parts, raw)

    def _read(self, number: int, raw: bytes) -> None:
        text = raw[:4096].decode("utf-8", "replace").replace("\0", "")
        elapsed, text = self._clock.taken_off(text)
        for line in read_line(number, text):
            self._heard(line, elapsed)

    def _heard(self, line: Line, elapsed: float | None) -> None:
        labels = _labels(line)
        if not line.written.strip():
            return
        if self._core:
            self._born(line, self._clock.read(labels, line.text))
            return
        if self._owner and (match := _ACTOR.match(line.text)):
            key = self._key(line, labels)
            self.workers[key].name = f"{match[1]} {self._owner.partition(' ')[2]}"
            return
        time = elapsed if elapsed is not None else self._clock.read(labels, line.text)
        key = self._key(line, labels)
        if key not in self.workers:
            return
        if key == _DRIVER and self._named is not None and self._named[0] == line.number - 1:
            key = self._named[1]  # a bar begins a line of its own behind the name of its process
        self._named = (line.number, key) if key != _DRIVER and not line.text.strip() else None
        proof = self._proof(line)
        if self.workers[key].first is None:
            self.workers[key].first = proof
            self._new.append(key)
        if time is not None:
            self._passed(_At(time, key, proof), line, labels)
        if _QUIET in line.text:
            self.quiet = proof
        self._told(key, time, line, proof)

    def _key(self, line: Line, labels: str) -> Key:
        """Whose line it is; a process that was not heard before is made known."""
        names = [match["who"] for match in _NAMED.finditer(labels)]
        name = (names[-1] if names else line.process) or self._owner or DRIVER
        if (match := _TORCH.search(labels)) and not name.endswith(f"pid={match[1]}"):
            names, name = [*names, name], f"pid={match[1]}"
        node = match[1] if (match := _NODE.search(labels)) else ""
        key = _identity(name, node)
        who = self.workers.get(key)
        if who is None and len(self.workers) < _WORKERS:
            parent = _identity(names[-2], node) if len(names) > 1 else None
            self.workers[key] = _Who(name, node, parent)
        elif who is not None and who.name.startswith(("pid=", "worker pid=")):
            who.name = name  # Ray knows the name of an actor only when it runs
        return key

    def _proof(self, line: Line) -> Proof:
        return Proof(self._source, line.number, line.written[:_WORDS])

    def _born(self, line: Line, time: float | None) -> None:
        """Ray's own log of a worker: when the process began, and when its actor was made, which imports what that needs."""
        if time is None or not (_BORN in line.text or _MADE in line.text):
            return
        key = ("", self._core)
        who = self.workers.setdefault(key, _Who(f"worker pid={self._core}", "", None))
        proof = self._proof(line)
        self.first = time if self.first is None else self.first
        if _BORN in line.text:
            who.open["start"] = (time, proof)
        else:
            self._ended(key, "start", time, proof)
            self._listens = False

    # What lies between two lines with times.

    def _passed(self, now: _At, line: Line, labels: str) -> None:
        last, new = self._last, [key for key in self._new if key != _DRIVER]
        self._new = []
        if self.first is None:
            self.first = now.time
        if last is not None and now.time < last.time - _BACKWARDS:
            self.disagree = True
        if last is not None and now.time > last.time:
            if now.time - last.time >= _SILENT:
                self._paused = (last, now.time)
            self._started(new, now)
            if not new and now.time - last.time >= _SILENT:
                self._silent(last, now, line, labels)
        if _VLLM.search(labels):
            self.workers[now.key].spoke_vllm = True
        if last is None or now.time >= last.time or self.disagree:
            self._last = now
            self._by_kind[self.workers[now.key].kind] = now
        self.end = now.time if self.end is None else max(self.end, now.time)

    def _started(self, new: list[Key], now: _At) -> None:
        """Processes were heard for the first time since the last line with a time."""
        kinds = {self.workers[key].kind for key in new}
        for key in new:
            who = self.workers[key]
            before = self._before(who)
            if before is None or who.first is None:
                continue
            if len(kinds) > 1 and not all(key == now.key for key in new):
                # Several of them in a stretch without times: how it is divided is not told.
                self._add(key, Span("start", None, None, "silence", (who.first,)))
            elif now.time - before.time > 0:
                length = now.time - before.time
                self._add(key, Span("start", length, before.time, "silence", (before.proof, who.first)))

    def _before(self, who: _Who) -> _At | None:
        """The last word of whoever may have started a process: its parent, or anybody who is not of its kind."""
        if who.parent is not None and who.parent in self.workers:
            said = self._by_kind.get(self.workers[who.parent].kind)
            # What a process says before it knows its name is taken for its parent's.
            if self._paused and said and 0 <= said.time - self._paused[1] <= _NAMELESS:
                said = self._paused[0]
            if said is not None:
                return said
        # Lines without a name are the driver's where it spoke first; else they may be anybody's.
        nobody = "" if next(iter(self.workers)) == _DRIVER else DRIVER
        others = [one for kind, one in self._by_kind.items() if kind not in {who.kind, nobody}]
        return max(others, key=lambda one: one.time, default=None)

    def _silent(self, last: _At, now: _At, line: Line, labels: str) -> None:
        who = self.workers[now.key]
        broken = next((one.phase for one in tellings(line.text) if one.kind == "break"), None)
        if _VLLM.search(labels) and not who.spoke_vllm:
            broken = "start"
        if _SHELL.match(last.proof.words):
            broken = "start"
        length = now.time - last.time
        span = Span(broken or "silence", length, last.time, "silence", (last.proof, now.proof))
        heapq.heappush(self.silences, (length, line.number, now.key, span))
        if len(self.silences) > _SILENCES:
            heapq.heappop(self.silences)

    # What lines tell.

    def _told(self, key: Key, time: float | None, line: Line, proof: Proof) -> None:
        who = self.workers[key]
        said = tellings(line.text)
        told = {one.phase for one in said if one.kind == "told"}
        for phase in [one for one in who.open if one != "step" and told - {one}]:
            del who.open[phase]  # it went on to something else, and did not say when
        for one in said:
            if one.kind == "told" and one.seconds is not None:
                self._add(key, _until(one.phase, one.seconds, time, (proof,)))
                who.open.pop(one.phase, None)
            elif one.kind == "begin":
                who.open.setdefault(one.phase, (time, proof))
            elif one.kind == "end" and one.phase not in told:
                self._ended(key, one.phase, time, proof)
            elif one.kind == "bar" and one.seconds is not None:
                self._bar(key, one.phase, one.seconds, time, proof, is_whole=one.is_whole)

    def _ended(self, key: Key, phase: str, time: float | None, proof: Proof) -> None:
        begun = self.workers[key].open.pop(phase, None)
        if phase == "ray":
            self.moments.append(Moment("Ray is up", time, proof))
        if begun is None:
            return
        began, first = begun
        seconds = None if time is None or began is None or time < began else time - began
        start = began if seconds is not None else None
        self._add(key, Span(phase, seconds, start, "between", (first, proof)))

    def _bar(
        self, key: Key, phase: str, seconds: float, time: float | None, proof: Proof, *, is_whole: bool
    ) -> None:
        who = self.workers[key]
        before = who.bars.get(phase)
        if before is not None and seconds < before[0]:
            self._bar_ended(key, phase)
        who.bars[phase] = (seconds, time, is_whole, proof)

    def _bar_ended(self, key: Key, phase: str) -> None:
        seconds, time, is_whole, proof = self.workers[key].bars.pop(phase)
        if seconds:
            span = _until(phase, seconds, time, (proof,))
            self._add(key, span if is_whole else replace(span, is_open=True))

    def _step(self, number: int, step: int, parts: dict[str, float], raw: bytes) -> None:
        """A step was logged: the start is over."""
        text = raw[:400].decode("utf-8", "replace")
        line = next(iter(read_line(number, self._clock.taken_off(text)[1])))
        key = self._key(line, _labels(line))
        time = self._last.time if self._last is not None and self._last.proof.number == number else None
        proof = self._proof(line)
        _, began = self.workers[key].open.pop("step", (None, proof)) if key in self.workers else (None, proof)
        # What was silent in it is part of it.
        self.silences = [one for one in self.silences if one[3].phase != "silence" or one[1] <= began.number]
        whole = parts.pop("step")
        span = _until("step", whole, time, (proof,))
        self._add(key, replace(span, parts=tuple(parts.items())))
        self.moments.append(Moment(f"step {step} was logged", time, proof))
        self.has_step = True
        self.end = time if time is not None else self.end
        self._listens = False

    def _add(self, key: Key, span: Span) -> None:
        if len(self.spans) < _SPANS:
            self.spans.append((key, span))

    def close(self) -> None:
        """The log is at its end: what has begun stays open."""
        for key, who in self.workers.items():
            for phase in list(who.bars):
                self._bar_ended(key, phase)
            if self.has_step or self._core:
                continue
            for phase, (began, proof) in who.open.items():
                last = self._by_kind.get(who.kind)
                seconds = None if began is None or self.end is None else max(self.end - began, 0)
                words = (proof,) if last is None else (proof, last.proof)
                self._add(
                    key, Span(phase, seconds, began if seconds is not None else None, "between", words, True)
                )


def _labels(line: Line) -> str:
    """What stands before the words of a line, also behind what a collector of logs put there that is not known as one."""
    if not line.process and "pid=" in line.text[:_LABELS]:
        named = [match.end() for match in _NAMED.finditer(line.written[:_LABELS])]
        if named:
            return line.written[: named[-1]]
    return line.written[: len(line.written) - len(line.text)]


def _identity(name: str, node: str) -> Key:
    """By what a process is known: its number and node, for its name is told later than its first line."""
    match = _PID.search(name)
    return (node, match[1]) if match else (node, name)


def _until(phase: str, seconds: float, end: float | None, proof: tuple[Proof, ...]) -> Span:
    return Span(phase, seconds, None if end is None else end - seconds, "told", proof)


def timeline(readers: Iterable[TimelineReader]) -> Timeline:
    """The time line of one job from all its logs."""
    heard = []
    for one in readers:
        one.close()
        if one.spans or one.silences:
            heard.append(one)
    if not heard:
        return Timeline()
    # Logs that count from their own beginning have no time in common with others.
    placed = [one for one in heard if not one.is_elapsed] or heard[:1]
    zero = min((one.first for one in placed if one.first is not None), default=None)
    who = _known(heard)
    spans: dict[Key, list[Span]] = {key: [] for key in who}
    silences: list[tuple[Key, Span]] = []
    for one in heard:
        at = zero if one in placed else None
        for key, span in one.spans:
            if not (one.disagree and span.how == "silence"):
                spans[key].append(_moved(span, at))
        if not one.disagree:
            silences += [(key, _moved(span, at)) for _, _, key, span in one.silences]
    end, has_step = _end(heard, placed, zero)
    for is_named in (True, False):  # a silence that is known to be something covers others too
        told = [span for several in spans.values() for span in several]
        for key, span in silences:
            if (span.phase != "silence") == is_named and not _is_small(span, end):
                spans[key].extend(without_covered([span], told))
    return Timeline(
        _workers(who, spans),
        tuple(_placed(one, moment, placed, zero) for one in heard for moment in one.moments),
        end,
        has_step,
        _notes(heard),
    )


def _known(heard: list[TimelineReader]) -> dict[Key, _Who]:
    """All processes, each by the best name that any log has for it."""
    who: dict[Key, _Who] = {}
    for one in heard:
        for key, worker in one.workers.items():
            if who.setdefault(key, worker).name.startswith(("pid=", "worker pid=")):
                who[key] = worker
    return who


def _end(
    heard: list[TimelineReader], placed: list[TimelineReader], zero: float | None
) -> tuple[float | None, bool]:
    """When the start was over: with its first step, else with the log or, of an engine alone, as soon as that was ready."""
    has_step = any(one.has_step for one in heard)
    if zero is None:
        return None, has_step
    ends = [one.end for one in placed if one.end is not None and one.has_step == has_step]
    ready = [
        span.end for one in placed for _, span in one.spans if span.phase == "engine" and span.end is not None
    ]
    is_engine = bool(ready) and not has_step and not any(one.moments for one in heard)
    return max(ready if is_engine else ends, default=zero) - zero, has_step


def _is_small(span: Span, end: float | None) -> bool:
    """Whether a silence is not worth a word, or came when the start was over."""
    if end is None or span.start is None or span.seconds is None:
        return False
    return span.start >= end or (span.phase == "silence" and span.seconds < _SMALL * end)


def _workers(who: dict[Key, _Who], spans: dict[Key, list[Span]]) -> tuple[Worker, ...]:
    order = {phase: at for at, phase in enumerate(PHASES)}
    every = [
        Worker(
            who[key].name,
            who[key].node,
            tuple(sorted(several, key=lambda one: (_start(one), order[one.phase]))),
        )
        for key, several in spans.items()
        if several
    ]
    return tuple(sorted(every, key=lambda one: min(map(_start, one.spans))))


def _start(span: Span) -> float:
    return float("inf") if span.start is None else span.start


def _placed(one: TimelineReader, moment: Moment, placed: list[TimelineReader], zero: float | None) -> Moment:
    at = moment.at if one in placed else None
    return replace(moment, at=None if at is None or zero is None else at - zero)


def _moved(span: Span, zero: float | None) -> Span:
    return replace(span, start=None if span.start is None or zero is None else span.start - zero)


def _notes(heard: list[TimelineReader]) -> tuple[str, ...]:
    notes = []
    if any(one.disagree for one in heard):
        notes.append(
            "the clocks in these logs do not agree, or one was set back: only what single lines tell is counted"
        )
    quiet = next((one.quiet for one in heard if one.quiet is not None), None)
    if quiet is not None and not any(span.phase in _VLLMS for one in heard for _, span in one.spans):
        notes.append(
            f"vLLM was told to say warnings only ({quiet.source}:{quiet.number}), so how long it loads and compiles is not told; "
            "+ray_kwargs.ray_init.runtime_env.env_vars.VLLM_LOGGING_LEVEL=INFO lets it speak"
        )
    again = sum(one.starts for one in heard)
    if again:
        notes.append(f"{counted(again + 1, 'start')} are in these logs; this is the last one")
    return tuple(notes)
