"""Durations side by side as a picture, such as a model's predicted load times from cold and warm caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.console import svg
from verl_doctor.toolkit.text import in_time

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 560, 170, 90, 28, 24


@dataclass(frozen=True)
class Bar:
    """One duration: its label, its seconds, and the colour of its box (1 to `svg.COLOURS`)."""

    label: str
    seconds: float
    colour: int = 1


def bars(name: str, title: str, rows: Sequence[Bar]) -> str:
    """Draw them below each other on one scale. `name` sets the picture apart from others in a page."""
    longest = max((row.seconds for row in rows), default=0) or 1
    content = [svg.text(4, 16, title, size=13)]
    for at, row in enumerate(rows):
        y, length = _TOP + at * _ROW, (_WIDTH - _LEFT - _RIGHT) * max(row.seconds, 0) / longest
        content += [
            svg.text(_LEFT - 8, y + 14, row.label, anchor="end"),
            svg.rect(
                _LEFT,
                y + 3,
                max(length, 1),
                _ROW - 8,
                row.colour,
                f"{row.label}: {seconds_text(row.seconds)}",
            ),
            svg.text(_LEFT + length + 6, y + 14, seconds_text(row.seconds)),
        ]
    what = "; ".join(f"{bar.label}: {seconds_text(bar.seconds)}" for bar in rows)
    return svg.picture(_WIDTH, _TOP + len(rows) * _ROW + 6, name, title, what, content)


def seconds_text(seconds: float) -> str:
    """Format seconds, with one decimal for small values."""
    return f"{seconds:.1f} s" if seconds < 10 else in_time(seconds)
