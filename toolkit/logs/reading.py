"""Reads logs and judges them together: the work of `verl-doctor logs` before it prints anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.diagnosis import Reading, read, together
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.recognised import Kind, Recognised
from verl_doctor.toolkit.logs.sources import Read, Source, UnreadableError, opened
from verl_doctor.toolkit.logs.timeline.join import timeline
from verl_doctor.toolkit.logs.timeline.reader import TimelineReader
from verl_doctor.toolkit.text import counted, in_bytes

_READ: frozenset[Kind] = frozenset({"log", "trace", "unknown"})
"""The kinds of files whose texts are judged: words of a script are no complaints."""
_RECURRING = frozenset({"first validation", "checkpoint", "end"})
"""The phases that a job may first reach after its first step."""


def diagnose(
    sources: Sequence[Source], noted: Sequence[str] = (), watch: Callable[[str], None] = lambda _: None
) -> Answer:
    """Read all sources in turn. An unreadable source is skipped, with a note after those already in `noted`.

    `watch` receives the name of the log being read, and how much of it was read.
    """
    started = time.perf_counter()
    readings: dict[str, Reading] = {}
    notes = list(noted)
    unread: list[str] = []
    size = 0
    readers: list[TimelineReader] = []
    kinds: dict[str, Kind] = {}
    for source in sources:
        reader = TimelineReader(source.name)
        what = Recognised(source.name)

        def beside(
            number: int, block: bytes, reader: TimelineReader = reader, what: Recognised = what
        ) -> None:
            reader.take(number, block)
            what.take(number, block)

        try:
            with opened(source) as content:
                found = excerpt(_watched(content, source.name, watch), beside=beside)
        except UnreadableError as error:
            notes.append(f"{source.name} was skipped: {error}")
            continue
        if found.cut_off:
            notes.append(f"{source.name} could not be read to its end: {found.cut_off}")
        if found.shortened:
            notes.append(
                f"of {counted(found.shortened, 'very long line')} of {source.name}, only the text "
                "around the first complaint and the end were read"
            )
        if found.cut_off or found.shortened:
            unread.append(source.name)
        if found.left_out:
            notes.append(
                f"{source.name} has so many errors that {counted(found.left_out, 'line')} of it were not read"
            )
        size += found.size
        if found.total:
            kinds[source.name] = what.kind
        if what.kind not in _READ:
            readings[source.name] = Reading(total=found.total)
            continue
        readers.append(reader)
        readings[source.name] = replace(read(found.lines, source.name, reader.trains_from), total=found.total)
    has_trained = any(reader.has_trained for reader in readers)
    reading = together(readings)
    reading = replace(reading, has_step=reading.has_step or has_trained)
    if "log" in kinds.values():
        notes += [f"{name} is a {kind}, not a log" for name, kind in kinds.items() if kind not in _READ]
    return Answer(
        _with_phase(reading, has_trained=has_trained),
        tuple(readings),
        size,
        tuple(notes),
        unread=tuple(unread),
        seconds=time.perf_counter() - started,
        timeline=timeline(readers),
        other_files={} if "log" in kinds.values() else kinds,
    )


def _watched(content: Read, name: str, watch: Callable[[str], None]) -> Read:
    """Return a reader that reports its progress."""
    so_far = 0

    def read(size: int) -> bytes:
        nonlocal so_far
        chunk = content(size)
        so_far += len(chunk)
        watch(f"reading {name}: {in_bytes(so_far)}")
        return chunk

    return read


def _with_phase(reading: Reading, *, has_trained: bool) -> Reading:
    """Return the reading without impossible phases.

    After a logged step, nothing fails during the start or in the first batch.
    """
    if not has_trained:
        return reading
    causes = tuple(
        replace(cause, phase=cause.phase if cause.phase in _RECURRING else None) for cause in reading.causes
    )
    error = reading.error
    if error is not None and error.phase not in _RECURRING:
        error = replace(error, phase=None)
    return replace(reading, causes=causes, error=error)


def codes_of(reading: Reading) -> tuple[str, ...]:
    """Return the codes that were named, the first cause's first."""
    return tuple(
        dict.fromkeys(cause.signature.code for cause in reading.causes if cause.signature is not None)
    )
