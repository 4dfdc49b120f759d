"""Reading logs and judging them together: what `verl-doctor logs` does before it says anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from verl_doctor.toolkit.log_diagnosis import Reading, read, together
from verl_doctor.toolkit.log_document import Answer
from verl_doctor.toolkit.log_excerpt import excerpt
from verl_doctor.toolkit.log_sources import Source, UnreadableError, opened
from verl_doctor.toolkit.log_timeline_join import timeline
from verl_doctor.toolkit.log_timeline_reader import TimelineReader
from verl_doctor.toolkit.text import counted


def diagnose(sources: Sequence[Source], noted: Sequence[str] = ()) -> Answer:
    """Read all of them, one after the other. What cannot be read is noted behind what was `noted` before, and passed over."""
    started = time.perf_counter()
    readings: dict[str, Reading] = {}
    notes = list(noted)
    unread: list[str] = []
    size = 0
    readers: list[TimelineReader] = []
    for source in sources:
        reader = TimelineReader(source.name)
        try:
            with opened(source) as content:
                found = excerpt(content, beside=reader.take)
        except UnreadableError as error:
            notes.append(f"{source.name} was passed over: {error}")
            continue
        if found.cut_off:
            notes.append(f"{source.name} could not be read to its end: {found.cut_off}")
        if found.shortened:
            notes.append(
                f"of {counted(found.shortened, 'very long line')} of {source.name} what stands around the first complaint and the end were read"
            )
        if found.cut_off or found.shortened:
            unread.append(source.name)
        if found.left_out:
            notes.append(
                f"{source.name} complains so much that {counted(found.left_out, 'line')} of it were not looked at"
            )
        size += found.size
        readers.append(reader)
        readings[source.name] = replace(read(found.lines, source.name), total=found.total)
    return Answer(
        together(readings),
        tuple(readings),
        size,
        tuple(notes),
        unread=tuple(unread),
        seconds=time.perf_counter() - started,
        timeline=timeline(readers),
    )


def codes_of(reading: Reading) -> tuple[str, ...]:
    """The codes that were named, the first cause's first."""
    return tuple(dict.fromkeys(one.signature.code for one in reading.causes if one.signature is not None))
