"""Reads the times of log lines, written by loggers and log collectors, as seconds on one scale.

Years and time zones are ignored: vLLM writes neither, and only the difference between two lines counts. At
the end of a year, and at midnight on clocks without a date, the time nearest to the previous one is chosen.
"""

from __future__ import annotations

import re

_DAY = 86_400
_YEAR = 365 * _DAY
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Of vLLM (11-21 12:00:00), Python and Ray (2026-11-21 12:00:00,123), Docker (2026-11-21T12:00:00.123456789Z),
# glog (W1121 12:00:00.123).
_DATED = re.compile(
    r"(?<![\d:.])(?:\d{4}[-/])?(\d\d)[-/]?(\d\d)[T _]+(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!\d|:\d)"
)
_SYSLOG = re.compile(r"\[?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? ")
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNDATED = re.compile(r"\[?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?[\] ]")
# Seconds since the start, as `ts -s` and users' scripts put them before each line.
_ELAPSED = re.compile(r"\s{0,12}\[?\s{0,12}(\d{1,7}\.\d{1,6})\]?\s+")
_HEADER = 120  # characters in which a clock is searched for


class Clock:
    """Reads the times of one log's lines, in order."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._counts: bool | None = (
            None  # whether lines begin with the seconds since the start; the first line decides
        )

    @property
    def is_elapsed(self) -> bool:
        """Whether times are seconds since the start of this log, a scale that no other log shares."""
        return bool(self._counts)

    def split_elapsed(self, line: str) -> tuple[float | None, str]:
        """Remove the seconds since the start.

        Return them, if this log has them, and the line without them.
        """
        if self._counts is False:
            return None, line
        match = _ELAPSED.match(line)
        if self._counts is None and line.strip():
            self._counts = match is not None
        if match is None:
            return None, line
        seconds = float(match[1])
        if self._last is not None and seconds < self._last:
            return None, line
        self._last = seconds
        return seconds, line[match.end() :]

    def without(self, line: str) -> str:
        """Remove the seconds since the start, if this log has them, from a line that was already read."""
        match = _ELAPSED.match(line) if self._counts else None
        return line if match is None else line[match.end() :]

    def read(self, labels: str, rest: str = "") -> float | None:
        """Return the time before a line's text (`labels`) or at its beginning (`rest`), None if absent."""
        if self._counts:
            return None
        found = _dated(labels[:_HEADER]) or _dated(rest[:40])
        if found is None:
            return self._undated(labels, rest)
        return self._nearest(found, _YEAR)

    def _undated(self, labels: str, rest: str) -> float | None:
        match = _UNDATED.match(labels) or _UNDATED.match(rest)
        if match is None or (found := _of_day(*match.groups())) is None:
            return None
        return self._nearest(found, _DAY)

    def _nearest(self, seconds: float, cycle: int) -> float:
        if self._last is not None:
            seconds += cycle * round((self._last - seconds) / cycle)
        self._last = seconds
        return seconds


def _dated(text: str) -> float | None:
    if match := _DATED.search(text):
        month, day, *time = match.groups()
    elif match := _SYSLOG.match(text):
        name, day, *time = match.groups()
        month = str(_NAMES.index(name) + 1) if name in _NAMES else "0"
    else:
        return None
    of_day = _of_day(*time)
    if of_day is None or not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
        return None
    return (sum(_MONTHS[: int(month) - 1]) + int(day) - 1) * _DAY + of_day


def _of_day(hour: str, minute: str, second: str, part: str | None) -> float | None:
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        return None
    return int(hour) * 3600 + int(minute) * 60 + int(second) + float(f"0.{part or 0}")
