"""When something runs out: lines through noise, steps and ramps that end."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from verl_doctor.toolkit.commands.watch.forecast import Forecast, by_urgency, forecast
from verl_doctor.toolkit.commands.watch.metrics import Gauge

GIB = 1 << 30


def seen(used: Callable[[float], float], looks: int = 30, every: float = 5) -> Forecast:
    times = [number * every for number in range(looks)]
    return forecast([(at, Gauge("disk", used(at), 100 * GIB, "bytes", "it is full")) for at in times])


def test_steady_growth_is_extrapolated_to_the_limit() -> None:
    found = seen(lambda at: 40 * GIB + at * GIB / 60)
    assert found.rate == pytest.approx(GIB / 60)
    # 30 looks in 145 s saw 2.4 GiB; 57.6 GiB are left.
    assert found.left == pytest.approx((60 * GIB - 145 * GIB / 60) / (GIB / 60))


def test_single_checkpoint_does_not_change_the_trend() -> None:
    noise = random.Random(1)

    def used(at: float) -> float:
        checkpoint = 20 * GIB if 50 <= at < 60 else 0
        return 40 * GIB + at * GIB / 60 + checkpoint + noise.uniform(-0.05, 0.05) * GIB

    assert seen(used).rate == pytest.approx(GIB / 60, rel=0.1)


@pytest.mark.parametrize(
    ("case", "used"),
    [
        ("steady", lambda at: 40 * GIB),
        ("falling", lambda at: 40 * GIB - at * 1000),
        ("a start that has come to its end", lambda at: 40 * GIB + min(at, 30) * GIB / 10),
        ("less than noise", lambda at: 40 * GIB + at * 10),
    ],
)
def test_gauge_without_growth_has_no_end(case: str, used: Callable[[float], float]) -> None:
    assert seen(used).left is None, case


def test_extrapolation_is_limited_by_the_observed_time() -> None:
    assert seen(lambda at: 10 * GIB + at * GIB / 60, looks=6).left is None, (
        "25 s say nothing of the next 90 minutes"
    )
    assert seen(lambda at: 10 * GIB + at * GIB / 60, looks=30).left is not None


def test_few_samples_give_no_forecast() -> None:
    assert seen(lambda at: at * GIB, looks=4) == Forecast(
        Gauge("disk", 15 * GIB, 100 * GIB, "bytes", "it is full"), too_short=True
    )


@pytest.mark.parametrize(("looks", "every", "is_foretold"), [(19, 60, False), (30, 4, False), (25, 5, True)])
def test_forecast_needs_two_minutes_or_twenty_samples(looks: int, every: float, is_foretold: bool) -> None:
    found = seen(lambda at: 10 * GIB + at * GIB / 100, looks, every)
    assert (found.left is not None, found.too_short) == (is_foretold, not is_foretold)
    assert found.rate is not None


def test_exhausted_gauge_has_no_time_left() -> None:
    assert seen(lambda at: 100 * GIB, looks=1).left == 0


def test_gauges_are_sorted_by_urgency() -> None:
    def forecast_of(name: str, used: float, left: float | None) -> Forecast:
        return Forecast(Gauge(name, used, 100, "number", ""), None, left)

    order = by_urgency(
        [
            forecast_of("full", 90, None),
            forecast_of("late", 10, 500.0),
            forecast_of("soon", 20, 30.0),
            forecast_of("empty", 1, None),
        ]
    )
    assert [found.gauge.name for found in order] == ["soon", "late", "full", "empty"]
