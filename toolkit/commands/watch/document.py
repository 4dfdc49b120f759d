"""What `verl-doctor watch` saw as a JSON document, and the phrases that its views share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.commands.watch.forecast import FORESEEN_FROM, SHORTEST, Forecast
from verl_doctor.toolkit.commands.watch.metrics import Gauge
from verl_doctor.toolkit.json_document import Keyword
from verl_doctor.toolkit.text import in_bytes, in_time
from verl_doctor.toolkit.verdict import Verdict


class GaugeDocument(TypedDict):
    """A resource that can run out."""

    name: str
    used: float
    limit: Annotated[float, "where something happens, possibly before everything is used"]
    unit: Literal["bytes", "number"]
    then: Annotated[str, "what happens at the limit"]
    per_second: Annotated[float | None, "how fast it grows; null while there are too few samples"]
    seconds_left: Annotated[float | None, "0 if it has run out, null if nothing indicates that it will"]


class WatchDocument(TypedDict):
    """What could run out, and when."""

    schema_version: Literal[1]
    verdict: Verdict
    looks: Annotated[int, Keyword("minimum", 1), "the number of samples"]
    seconds: Annotated[float, "how long it watched"]
    gauges: Annotated[list[GaugeDocument], "the most urgent first"]


def document(forecasts: Sequence[Forecast], *, looks: int, seconds: float, within: float) -> WatchDocument:
    """Return everything in JSON types. The gauges are ordered by urgency."""
    return {
        "schema_version": 1,
        "verdict": verdict(forecasts, within),
        "looks": looks,
        "seconds": round(seconds, 1),
        "gauges": [
            {
                "name": forecast.gauge.name,
                "used": forecast.gauge.used,
                "limit": forecast.gauge.limit,
                "unit": forecast.gauge.unit,
                "then": forecast.gauge.then,
                "per_second": forecast.rate,
                "seconds_left": forecast.left,
            }
            for forecast in forecasts
        ],
    }


def ending(forecasts: Sequence[Forecast], within: float) -> list[Forecast]:
    """Return what has run out, or will within this many seconds."""
    return [forecast for forecast in forecasts if forecast.left is not None and forecast.left <= within]


def verdict(forecasts: Sequence[Forecast], within: float) -> Verdict:
    """Return "could_not_check" if nothing has run out, and nothing was watched long enough for a forecast."""
    if ending(forecasts, within):
        return "failures"
    return "could_not_check" if forecasts and all(forecast.too_short for forecast in forecasts) else "ok"


def headline(forecasts: Sequence[Forecast], within: float) -> tuple[str, str]:
    """Return the verdict as a word and a sentence."""
    found = ending(forecasts, within)
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return "FAIL", f"{first_of(found[0])}{more}"
    if not forecasts:
        return "UNKNOWN", "this machine reports nothing that can run out"
    if verdict(forecasts, within) == "could_not_check":
        fullest = max(forecasts, key=lambda forecast: forecast.gauge.part)
        seen = f"nothing has run out; {fullest.gauge.name} is fullest, {part(fullest.gauge)}"
        return (
            "TOO SHORT",
            f"{seen}; a forecast needs at least {FORESEEN_FROM} samples in {in_time(SHORTEST)}",
        )
    return "OK", f"nothing runs out within {in_time(within)} at the present rate"


def first_of(forecast: Forecast) -> str:
    """Return what happens to one gauge, and when."""
    when = "now" if not forecast.left else f"in about {in_time(forecast.left)}"
    growth = f", {change(forecast)}" if forecast.rate and forecast.left else ""
    return f"{forecast.gauge.name}: {forecast.gauge.then} {when} ({part(forecast.gauge)}{growth})"


def part(gauge: Gauge) -> str:
    """Return how much of the limit is used."""
    return f"{min(gauge.part, 1):.0%}"


def amounts(gauge: Gauge) -> str:
    """Return the used amount and the limit."""
    if gauge.unit == "bytes":
        return f"{in_bytes(gauge.used)} of {in_bytes(gauge.limit)}"
    return f"{gauge.used:,.0f} of {gauge.limit:,.0f}"


def change(forecast: Forecast) -> str:
    """Return how fast it changes; "" if unknown or zero."""
    if not forecast.rate:
        return ""
    sign, rate = "+-"[forecast.rate < 0], abs(forecast.rate)
    if forecast.gauge.unit == "bytes":
        return f"{sign}{in_bytes(rate)}/s" if rate >= 1 else ""
    text = f"{rate * 60:.1f}"
    return "" if text == "0.0" else f"{sign}{text}/min"
