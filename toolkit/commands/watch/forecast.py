"""Forecast when something will run out: a straight line through the samples.

The slope is the median of those between all pairs of samples (Theil 1950, Sen 1968): a single checkpoint or
garbage collection does not affect it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from verl_doctor.toolkit.commands.watch.metrics import Gauge

_FEWEST = 5  # samples before growth is shown
FORESEEN_FROM = 20  # samples before a forecast
SHORTEST = 120.0  # seconds between the first of them and the last
_MOST = 60  # samples to look back
_NOISE = 0.0005  # of the limit: smaller changes are not growth
_REACH = 100  # times the observed period: the forecast reaches no further


@dataclass(frozen=True)
class Forecast:
    """A gauge as it is now.

    `rate` is in its unit per second, None while too little was seen; `left` in seconds.

    `left` is 0 if it has run out and None if no end is in sight. `too_short`: it was not watched long enough
    for a forecast.
    """

    gauge: Gauge
    rate: float | None = None
    left: float | None = None
    too_short: bool = False


def forecast(seen: Sequence[tuple[float, Gauge]]) -> Forecast:
    """Judge one gauge by all looks at it, the oldest first, each with its time in seconds."""
    now = seen[-1][1]
    too_short = len(seen) < FORESEEN_FROM or seen[-1][0] - seen[0][0] < SHORTEST
    if now.used >= now.limit:
        return Forecast(now, _slope(seen), 0.0, too_short)
    rate = _slope(seen)
    if too_short or rate is None or rate <= 0 or not _grows(seen):
        return Forecast(now, rate, None, too_short)
    left = (now.limit - now.used) / rate
    looked_back = seen[-1][0] - seen[-_MOST:][0][0]
    return Forecast(now, rate, left if left <= _REACH * looked_back else None, too_short)


def by_urgency(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """Order by urgency: what runs out first, then what is fullest."""
    never = float("inf")
    return sorted(
        forecasts,
        key=lambda forecast: (
            never if forecast.left is None else forecast.left,
            -forecast.gauge.part,
            forecast.gauge.name,
        ),
    )


def _slope(seen: Sequence[tuple[float, Gauge]]) -> float | None:
    looks = seen[-_MOST:]
    if len(looks) < _FEWEST:
        return None
    slopes = [
        (late.used - early.used) / (after - before)
        for (before, early), (after, late) in combinations(looks, 2)
        if after > before
    ]
    return statistics.median(slopes) if slopes else None


def _grows(seen: Sequence[tuple[float, Gauge]]) -> bool:
    """Return whether it grew by more than noise, and still does in the later half."""
    looks = seen[-_MOST:]
    first, middle, last = looks[0][1], looks[len(looks) // 2][1], looks[-1][1]
    return last.used - first.used > _NOISE * last.limit and last.used > middle.used
