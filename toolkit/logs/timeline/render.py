"""Renders a start's timeline for a terminal and as Markdown.

One row per kind of process, phases as letters on one scale.
"""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.logs.lines import shown
from verl_doctor.toolkit.logs.timeline.phases import LOG_PHASES
from verl_doctor.toolkit.logs.timeline.timeline import Span, Timeline, Worker
from verl_doctor.toolkit.text import harmless, listed, wrapped

NOTHING = "No line in these logs shows how long any part of the job's start took"
TABLE_HEAD = ("process", "phase", "seconds", "begins at", "proof")
_ROWS = 12
_MOMENTS = 5  # maximum number of moments that are named
_NAME = 20  # columns
_WIDTH = 80  # columns if the output is a pipe, which has no width
SHORT = 0.05  # seconds below which a phase is not reported
_MUCH = 0.1  # minimum share of the total for a hint about a phase
_LONG = 5.0  # minimum seconds for it, if the total is unknown


def summary(timeline: Timeline) -> str:
    """Return one sentence on how long the start took, and what took longest."""
    if timeline.longest is None:
        return ""
    worker, span = timeline.longest
    longest = f"{LOG_PHASES[span.phase].title} ({named(worker)}), {duration_text(span)}"
    if timeline.seconds is None:
        return f"longest phase of the start: {longest}"
    until = " to the end of the first step" if timeline.has_step else ""
    return f"start-up took {seconds_of(timeline.seconds)}{until}; longest phase: {longest}"


def text_lines(timeline: Timeline, width: int | None) -> Iterator[str]:
    """Yield the lines of the chart and the text below it."""
    yield from chart(timeline, width)
    for line in below(timeline):
        yield from wrapped(f"  {harmless(line)}", _columns(width), hanging="    ")


def chart(timeline: Timeline, width: int | None) -> Iterator[str]:
    """Yield the lines of the chart alone."""
    columns = _columns(width)
    rows = kinds(timeline)
    if not timeline.workers:
        yield NOTHING
        return
    yield from wrapped(headline(timeline), columns, hanging="  ")
    room = max(columns - _NAME - 4, 30)
    bar = room * 5 // 9
    used: dict[str, None] = {}
    for worker, count in rows[:_ROWS]:
        name = harmless(shown(worker.kind)) + (f" x{count}" if count > 1 else "")
        phases = _phases(worker, room - bar)
        used.update(dict.fromkeys(span.phase for span in worker.spans if (span.seconds or 0) >= SHORT))
        yield f"  {_short(name, _NAME):<{_NAME}}|{_bar(worker, timeline, bar)}|{phases}"
    if len(rows) > _ROWS:
        yield f"  and {len(rows) - _ROWS} more kinds of process"
    letters = dict.fromkeys(
        f"{LOG_PHASES[phase].letter} {LOG_PHASES[phase].title}" for phase in LOG_PHASES if phase in used
    )
    yield from wrapped(f"  {'; '.join(letters)}", columns, hanging="  ")


def _columns(width: int | None) -> int:
    return min(max(width or _WIDTH, 60), 120)


def markdown_lines(timeline: Timeline) -> Iterator[str]:
    """Yield the same content as a Markdown table."""
    yield f"### {escaped(headline(timeline))}"
    yield ""
    for row in (TABLE_HEAD, *table(timeline)):
        yield "| " + " | ".join(map(escaped, row)) + " |"
        if row is TABLE_HEAD:
            yield "|" + "---|" * len(row)
    yield ""
    yield from (f"- {escaped(line)}" for line in below(timeline))


def table(timeline: Timeline) -> Iterator[tuple[str, ...]]:
    """Yield the phases of each kind of process, below `TABLE_HEAD`."""
    for worker, count in kinds(timeline):
        for span in worker.spans:
            name = shown(worker.name) + (f" (the slowest of {count})" if count > 1 else "")
            begins = "" if span.start is None else f"{span.start:.1f}"
            yield name, LOG_PHASES[span.phase].title, duration_text(span), begins, proof_of(span)


def headline(timeline: Timeline) -> str:
    """Return the title of the chart."""
    if timeline.seconds is None:
        return "How start-up time was spent, as far as lines show it (they have no times)"
    until = (
        "the first step was logged" if timeline.has_step else "the end of the start, as far as the logs show"
    )
    return f"Where start-up time went: {seconds_of(timeline.seconds)} until {until}"


def kinds(timeline: Timeline) -> list[tuple[Worker, int]]:
    """Return, for each kind of process, the slowest process and their number.

    Those without a known phase are left out.
    """
    slowest: dict[str, Worker] = {}
    counts: dict[str, int] = {}
    for worker in timeline.workers:
        if not any(span.seconds and span.seconds >= SHORT for span in worker.outer):
            continue
        counts[worker.kind] = counts.get(worker.kind, 0) + 1
        if worker.seconds > slowest.setdefault(worker.kind, worker).seconds:
            slowest[worker.kind] = worker
    return [(worker, counts[kind]) for kind, worker in slowest.items()]


def below(timeline: Timeline) -> Iterator[str]:
    """Yield further information: the longest phase, the total of each, and what would shorten it."""
    if timeline.longest is not None:
        worker, span = timeline.longest
        yield (
            f"longest: {shown(worker.name)}, {LOG_PHASES[span.phase].title}, {duration_text(span)} "
            f"({proof_of(span)})"
        )
    totals = {phase: timeline.together(phase) for phase in LOG_PHASES}
    large = sorted((phase for phase in totals if totals[phase] >= 1), key=lambda phase: -totals[phase])
    if large:
        whole = timeline.seconds
        yield "in total, with simultaneous work counted once: " + ", ".join(
            f"{LOG_PHASES[phase].title} {seconds_of(totals[phase])}"
            + (f" ({totals[phase] / whole:.0%})" if whole else "")
            for phase in large
        )
    if moments := [
        f"{moment.what} at {seconds_of(moment.at)}" for moment in timeline.moments if moment.at is not None
    ]:
        yield ", ".join(moments[:_MOMENTS])
    unknown = dict.fromkeys(
        f"{LOG_PHASES[span.phase].title} ({shown(worker.kind)})"
        for worker in timeline.workers
        for span in worker.spans
        if span.seconds is None
    )
    if unknown:
        yield f"unknown duration: {listed(unknown, _MOMENTS)}"
    for worker in timeline.workers:
        yield from (_step(span) for span in worker.spans if span.parts)
    for phase in large:
        if LOG_PHASES[phase].helps and totals[phase] >= max(_LONG, _MUCH * (timeline.seconds or 0)):
            yield f"what may shorten it, {LOG_PHASES[phase].helps}"
    yield from (f"note: {note}" for note in timeline.notes)


def _step(span: Span) -> str:
    rest = (span.seconds or 0) - sum(length for _, length in span.parts)
    parts = sorted(span.parts, key=lambda pair: -pair[1])
    parts_text = [f"{shown(name)} {seconds_of(length)}" for name, length in parts if length >= SHORT][:6]
    if rest >= SHORT:
        parts_text.append(f"what verl does not time {seconds_of(rest)}")
    return f"first step, {duration_text(span)}: {', '.join(parts_text)}"


def named(worker: Worker) -> str:
    """Return a process's name, safe to display."""
    return shown(worker.name) + (f" on {shown(worker.node)}" if worker.node else "")


def duration_text(span: Span) -> str:
    """Return how long a phase took, as text."""
    if span.seconds is None:
        return "unknown"
    return f"at least {seconds_of(span.seconds)}, not finished" if span.is_open else seconds_of(span.seconds)


def seconds_of(seconds: float) -> str:
    """Return seconds with one decimal, or without from a hundred on."""
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.1f} s"


def proof_of(span: Span) -> str:
    """Return the lines that prove a phase."""
    if not span.proof:
        return ""
    first, last = span.proof[0], span.proof[-1]
    if first.number == last.number:
        return f"{first.source}:{first.number}"
    return (
        f"{first.source}:{first.number} to {last.number}"
        if first.source == last.source
        else (f"{first.source}:{first.number} to {last.source}:{last.number}")
    )


def _bar(worker: Worker, timeline: Timeline, columns: int) -> str:
    """Return its phases on the common scale.

    Later phases are over earlier ones, and parts over the phases that contain them.
    """
    cells = [" "] * columns
    whole = timeline.seconds
    if not whole:
        return "".join(cells)
    for span in worker.spans:
        if span.start is None or span.end is None or not span.seconds:
            continue
        begin = min(int(max(span.start, 0) / whole * columns), columns - 1)
        end = min(max(round(span.end / whole * columns), begin + 1), columns)
        cells[begin:end] = LOG_PHASES[span.phase].letter * (end - begin)
    return "".join(cells)


def _phases(worker: Worker, columns: int) -> str:
    """Return its phases with their seconds, the longest first, as many as fit."""
    sums: dict[str, float] = {}
    for span in worker.outer:
        sums[LOG_PHASES[span.phase].letter] = sums.get(LOG_PHASES[span.phase].letter, 0) + (span.seconds or 0)
    text = ""
    for letter, length in sorted(sums.items(), key=lambda pair: -pair[1]):
        more = f" {letter} {seconds_of(length)}"
        if length < SHORT or len(text) + len(more) > columns:
            break
        text += more
    return text


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2] + ".."
