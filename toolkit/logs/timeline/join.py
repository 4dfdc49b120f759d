"""Joins the timelines of all logs of a job on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from verl_doctor.toolkit.logs.timeline.phases import LOG_PHASES
from verl_doctor.toolkit.logs.timeline.process import Process
from verl_doctor.toolkit.logs.timeline.reader import TimelineReader
from verl_doctor.toolkit.logs.timeline.speakers import Key, is_nameless
from verl_doctor.toolkit.logs.timeline.timeline import (
    Moment,
    Span,
    Timeline,
    Worker,
    without_covered,
)
from verl_doctor.toolkit.text import counted

_SMALL = 0.04  # silences below this share of the total are not reported
_OF_VLLM = frozenset({"weights", "engine", "compile", "capture", "shards"})


def timeline(readers: Iterable[TimelineReader]) -> Timeline:
    """Return the timeline of one job from all its logs."""
    every = list(readers)
    for reader in every:
        reader.close()
    with_times = [reader for reader in every if reader.spans or any(reader.gaps.silences())]
    if not with_times:
        return Timeline()
    # The times of logs that count from their own beginning cannot be compared with others.
    placed = [reader for reader in with_times if not reader.is_elapsed] or with_times[:1]
    zero = min((reader.gaps.first for reader in placed if reader.gaps.first is not None), default=None)
    processes = _known(every)
    spans: dict[Key, list[Span]] = {key: [] for key in processes}
    silences: list[tuple[Key, Span]] = []
    for reader in with_times:
        at = zero if reader in placed else None
        for key, span in reader.spans:
            if not (reader.gaps.disagree and span.how == "silence"):
                spans[key].append(_moved(span, at))
        if not reader.gaps.disagree:
            silences += [(key, _moved(span, at)) for key, span in reader.gaps.silences()]
    end, has_step = _end(with_times, placed, zero)
    for is_named in (True, False):  # a silence with a known reason also covers others
        all_spans = [span for several in spans.values() for span in several]
        for key, span in silences:
            if (span.phase != "silence") == is_named and not _is_small(span, end):
                spans[key].extend(without_covered([span], all_spans))
    return Timeline(
        _workers(processes, spans),
        tuple(_placed(reader, moment, placed, zero) for reader in with_times for moment in reader.moments),
        end,
        has_step,
        _notes(with_times),
    )


def _known(readers: Sequence[TimelineReader]) -> dict[Key, Process]:
    """Return all processes, each by the best name that any log has for it."""
    processes: dict[Key, Process] = {}
    for reader in readers:
        for key, worker in reader.processes.items():
            if is_nameless(processes.setdefault(key, worker).name):
                processes[key] = worker
    return processes


def _end(
    readers: Sequence[TimelineReader], placed: Sequence[TimelineReader], zero: float | None
) -> tuple[float | None, bool]:
    """Return when the start was over.

    With the first step, otherwise at the end of the log or, for an engine alone, once it was ready.
    """
    has_step = any(reader.has_step for reader in readers)
    if zero is None:
        return None, has_step
    ends = [
        reader.gaps.end for reader in placed if reader.gaps.end is not None and reader.has_step == has_step
    ]
    ready = [
        span.end
        for reader in placed
        for _, span in reader.spans
        if span.phase == "engine" and span.end is not None
    ]
    is_engine = bool(ready) and not has_step and not any(reader.moments for reader in readers)
    return max(ready if is_engine else ends, default=zero) - zero, has_step


def _is_small(span: Span, end: float | None) -> bool:
    """Return whether a silence is too short to report or came after the start."""
    if end is None or span.start is None or span.seconds is None:
        return False
    return span.start >= end or (span.phase == "silence" and span.seconds < _SMALL * end)


def _workers(processes: dict[Key, Process], spans: dict[Key, list[Span]]) -> tuple[Worker, ...]:
    order = {phase: at for at, phase in enumerate(LOG_PHASES)}
    every = [
        Worker(
            processes[key].name,
            processes[key].node,
            tuple(sorted(several, key=lambda span: (_start(span), order[span.phase]))),
        )
        for key, several in spans.items()
        if several
    ]
    return tuple(sorted(every, key=lambda worker: min(map(_start, worker.spans))))


def _start(span: Span) -> float:
    return float("inf") if span.start is None else span.start


def _placed(
    reader: TimelineReader, moment: Moment, placed: Sequence[TimelineReader], zero: float | None
) -> Moment:
    at = moment.at if reader in placed else None
    return replace(moment, at=None if at is None or zero is None else at - zero)


def _moved(span: Span, zero: float | None) -> Span:
    return replace(span, start=None if span.start is None or zero is None else span.start - zero)


def _notes(readers: Sequence[TimelineReader]) -> tuple[str, ...]:
    notes = []
    if any(reader.gaps.disagree for reader in readers):
        notes.append(
            "the clocks in these logs do not agree, or one was set back: only durations within single "
            "lines are counted"
        )
    quiet = next((reader.quiet for reader in readers if reader.quiet is not None), None)
    if quiet is not None and not any(
        span.phase in _OF_VLLM for reader in readers for _, span in reader.spans
    ):
        notes.append(
            f"vLLM logs warnings only ({quiet.source}:{quiet.number}), so its loading and compiling "
            "times are unknown; +ray_kwargs.ray_init.runtime_env.env_vars.VLLM_LOGGING_LEVEL=INFO "
            "shows them"
        )
    if any(reader.is_cut for reader in readers):
        notes.append("a log is too long to be read up to its first step")
    again = sum(reader.starts for reader in readers)
    if again:
        notes.append(f"{counted(again + 1, 'start')} are in these logs; this is the last one")
    return tuple(notes)
