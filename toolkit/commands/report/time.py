"""How the time until the first step is spent.

It shows the start according to the logs, and how fast weights are read in each way.
"""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.commands.report.page import (
    Bars,
    Fold,
    PageSection,
    Paragraph,
    Points,
    Rank,
    StartUp,
    Table,
    Values,
)
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.console.svg_bars import Bar
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.logs.timeline import render
from verl_doctor.toolkit.text import in_bytes

_WAYS = (
    ("mapped", "as loaders map them"),
    ("parallel", "by several readers"),
    ("direct", "bypassing the page cache"),
    ("warm", "from memory"),
)
_COLUMNS = 100  # of a chart in a page


def sections(seen: Seen) -> Iterator[PageSection]:
    """Yield the sections.

    There is none on the start if no log shows one, and none on reading if no model was named or reading was
    not measured.
    """
    yield from _start(seen)
    yield from _loading(seen)


def _start(seen: Seen) -> Iterator[PageSection]:
    timeline = None if seen.log is None else seen.log.timeline
    if timeline is None or not timeline.is_worth_showing:
        return
    chart = tuple(render.chart(timeline, _COLUMNS))
    rows = tuple(render.table(timeline))
    yield PageSection(
        "How start-up time was spent",
        (
            StartUp(timeline, chart),
            Points(tuple(render.below(timeline))),
            Fold("Each phase with the lines that prove it", (Table(render.TABLE_HEAD, rows),)),
        ),
        Rank.REPAIRS,
    )


def _loading(seen: Seen) -> Iterator[PageSection]:
    storage, speed = seen.facts.get(ModelStorage), seen.facts.get(LoadSpeed)
    if isinstance(storage, Unknown) or isinstance(speed, Unknown) or not storage.bytes:
        return
    tried = [
        (name, reading.rate)
        for way, name in _WAYS
        if (reading := getattr(speed, way)) is not None and reading.rate
    ]
    if not tried:
        return
    cached = "" if storage.cached is None else f", {in_bytes(storage.cached)} of them in the page cache now"
    sentence = (
        f"{in_bytes(storage.bytes)} of weights on {storage.where}{cached}. Speeds were measured on parts of "
        "them."
    )
    bars = tuple(Bar(name, storage.bytes / rate, colour) for colour, (name, rate) in enumerate(tried, 1))
    speeds = Values(tuple((name, f"{in_bytes(rate)}/s") for name, rate in tried))
    title = "How long it takes to read all weights once"
    yield PageSection(
        "How long the model takes to load", (Paragraph(sentence), Bars(title, bars), speeds), Rank.REPAIRS
    )
