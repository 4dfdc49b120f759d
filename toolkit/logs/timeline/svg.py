"""Draws the timeline of a start as SVG: a row per kind of process, a box per phase, on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.console import svg
from verl_doctor.toolkit.logs.timeline.phases import LOG_PHASES
from verl_doctor.toolkit.logs.timeline.render import (
    SHORT,
    below,
    duration_text,
    headline,
    kinds,
    named,
    proof_of,
)
from verl_doctor.toolkit.logs.timeline.timeline import Timeline, Worker

_WIDTH = 760
_LEFT, _RIGHT = 170, 12  # pixels on either side of the scale
_TOP, _ROW, _BOX = 30, 26, 18
_PART = 0.35  # of a box's height, for a part of the phase
_LETTER = 6.2  # pixels of a letter, approximately
_MOST = 40  # rows
_NAME = 24  # letters of a name
_TICKS = 6


def picture(timeline: Timeline, name: str = "start-up") -> str:
    """Draw the whole picture. `name` sets it apart from other pictures in a page."""
    rows = kinds(timeline)[:_MOST]
    drawn = {span.phase for worker, _ in rows for span in worker.spans if (span.seconds or 0) >= SHORT}
    used = [phase for phase in LOG_PHASES if phase in drawn]
    legend = list(_legend(used, _TOP + len(rows) * _ROW + 40))
    height = _TOP + len(rows) * _ROW + 40 + 18 * (1 + (len(used) - 1) // 4) + 6
    content = (
        svg.text(4, 16, headline(timeline), size=13),
        *_scale(timeline, len(rows)),
        *(_row(worker, count, timeline, _TOP + at * _ROW) for at, (worker, count) in enumerate(rows)),
        *legend,
    )
    return svg.picture(_WIDTH, height, name, headline(timeline), ". ".join(below(timeline)), content)


def _x(at: float, timeline: Timeline) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(at / (_whole(timeline)), 0), 1)


def _whole(timeline: Timeline) -> float:
    """Return the end of the scale; if no line has a time, the length of the longest row."""
    if timeline.seconds:
        return timeline.seconds
    return max((worker.seconds for worker in timeline.workers), default=0) or 1


def _scale(timeline: Timeline, rows: int) -> Iterator[str]:
    bottom = _TOP + rows * _ROW + 4
    whole = _whole(timeline)
    step = _round(whole / _TICKS)
    at = 0.0
    while at <= whole:
        x = _x(at, timeline)
        yield svg.line(x, _TOP - 2, x, bottom, is_faint=True)
        yield svg.text(x, bottom + 14, f"{at:g} s", anchor="middle", size=10, is_faint=True)
        at += step


def _round(least: float) -> float:
    """Return the next round number that is not smaller."""
    size = 10.0 ** len(str(int(least))) / 10 if least >= 1 else 0.1
    return next((size * factor for factor in (1, 2, 5, 10) if size * factor >= least), size * 10)


def _row(worker: Worker, count: int, timeline: Timeline, y: float) -> str:
    name = f"{worker.kind} x{count}" if count > 1 else worker.kind
    short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    boxes = list(_boxes(worker, timeline, y))
    return svg.group(
        (
            svg.text(_LEFT - 8, y + 15, short, anchor="end"),
            svg.line(_LEFT, y + _ROW - 2, _WIDTH - _RIGHT, y + _ROW - 2, is_faint=True),
            *boxes,
        ),
        named(worker),
    )


def _boxes(worker: Worker, timeline: Timeline, y: float) -> Iterator[str]:
    """Yield the boxes.

    Parts of a phase are lower, with the phase's seconds above them. Phases without times follow each other.
    """
    outer, at, words = worker.outer, 0.0, []
    middle = 15 if len(outer) == len(worker.spans) else 11
    for span in worker.spans:
        start = span.start
        if start is None and timeline.seconds is None and span in outer:
            start, at = at, at + (span.seconds or 0)
        if start is None or not span.seconds:
            continue
        x, end = _x(start, timeline), _x(start + span.seconds, timeline)
        is_part = span not in outer
        title = f"{named(worker)}: {LOG_PHASES[span.phase].title}, {duration_text(span)} ({proof_of(span)})"
        height = _BOX * _PART if is_part else _BOX
        yield svg.rect(
            x,
            y + 3 + _BOX - height,
            max(end - x, 1),
            height,
            LOG_PHASES[span.phase].colour,
            title,
            is_open=span.is_open or span.phase == "silence",
        )
        if not is_part and span.phase != "silence" and end - x >= _LETTER * (len(duration_text(span)) + 1):
            words.append(
                svg.text(
                    (x + end) / 2, y + middle, duration_text(span), anchor="middle", size=10, on_box=True
                )
            )
    yield from words


def _legend(used: Sequence[str], y: float) -> Iterator[str]:
    for at, phase in enumerate(used):
        x, line = 8 + at % 4 * (_WIDTH - 16) / 4, y + at // 4 * 18
        yield svg.rect(x, line - 9, 10, 10, LOG_PHASES[phase].colour, is_open=phase == "silence")
        yield svg.text(x + 15, line, LOG_PHASES[phase].title, size=10)
