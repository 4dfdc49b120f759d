"""Derive the outcome of a rung from a child that failed or was ended: its last step, and the first cause."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

from verl_doctor.toolkit.commands.smoke.child import Ran, unfinished
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Step
from verl_doctor.toolkit.logs.first_cause import Cause, first_cause

HANGS = "SMOKE111"
_ENDINGS = (".err", ".out", ".log")
# How Ray's own processes log what ends them: [2026-11-22 12:00:00,123 C 77 77] (raylet) dlmalloc.cc:161: ...
_FATAL = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ C \d+ \d+\] (?P<said>.*\S)", re.MULTILINE)
_OF_RAY = ("raylet", "gcs_server")
_LONGEST = 300  # characters of one such line
_LARGEST = 4 * 1024 * 1024  # bytes of one Ray log


def steps_of(*some: Ran) -> tuple[Step, ...]:
    """Return what children have done, in order."""
    return tuple(
        Step(str(document["step"]), float(document.get("seconds", 0)), document.get("cpu"))
        for ran in some
        for document in ran.documents
        if "step" in document
    )


def remedy_of(ran: Ran) -> str:
    """Return how to avoid the work during which a child was ended, "" if unknown."""
    return ran.builds.remedy if ran.why_ended and ran.builds and ran.builds.going_on else ""


def left_out(ran: Ran) -> tuple[str, ...]:
    """Return what a child did not try, and why."""
    return tuple(str(document["left_out"]) for document in ran.documents if "left_out" in document)


def failed(ran: Ran, codes: Mapping[str, str], *, remedy: str = "", logs: Path | None = None) -> Outcome:
    """Return the outcome of a child that did not end well.

    `codes` are keyed by the beginning of the name of its last step, "" for all others. A hang has a code of
    its own. `logs` is a folder of Ray, with the logs of processes that do not report to the driver: the fatal
    line of one that ended is always shown.
    """
    at = unfinished(ran.documents)
    code = next((code for step, code in codes.items() if at.startswith(step) and step), codes[""])
    found = first_cause(ran.text)
    deeper = _in_logs(logs) if logs is not None and (found is None or ran.why_ended) else None
    log = ran.log
    if deeper is not None:
        (log, found) = deeper
    words = found.words if found else ""
    lines = found.lines if found else _last(ran)
    if fatal := _fatal_line(logs):
        process, text = fatal
        lines = (*lines, f"{process}: {text}")
        words = f"{words}; the {process} ended: {text}" if words else f"the {process} ended: {text}"
    where = f"{at}: " if at else ""
    if ran.why_ended:
        code = HANGS if ran.ended_for == "time" else code
        words = f"{ran.ending}; before that: {words}" if words else ran.ending
        remedy = remedy or remedy_of(ran)
    return Outcome(
        "failed",
        f"{where}{words or _ended(ran)}",
        remedy,
        code,
        lines,
        log,
        steps_of(ran),
    )


def _ended(ran: Ran) -> str:
    if ran.code is not None and ran.code < 0:
        number = -ran.code
        name = signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
        return f"the process was ended by {name} without giving a reason"
    return f"the process ended with status {ran.code} without giving a reason"


def _last(ran: Ran) -> tuple[str, ...]:
    return tuple(line for line in ran.text.splitlines()[-4:] if line.strip())


def _in_logs(folder: Path) -> tuple[Path, Cause] | None:
    """Return the first cause that one of Ray's processes logged; stderr comes first."""
    paths = sorted(
        folder.glob("*"),
        key=lambda path: (_ENDINGS.index(path.suffix) if path.suffix in _ENDINGS else 9, path.name),
    )
    for path in paths:
        text = _text(path) if path.suffix in _ENDINGS else ""
        if cause := first_cause(text):
            return path, cause
    return None


def _fatal_line(logs: Path | None) -> tuple[str, str] | None:
    """Return the first of Ray's own processes that logged a fatal line, and that line.

    The driver only sees that the process is gone.
    """
    for process in _OF_RAY if logs is not None else ():
        for path in sorted(logs.rglob(f"{process}*")) if logs is not None else ():
            if path.suffix in _ENDINGS and (found := _FATAL.search(_text(path))):
                return process, found["said"][:_LONGEST]
    return None


def _text(path: Path) -> str:
    """Return the content of a small file, "" if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace") if path.stat().st_size <= _LARGEST else ""
    except OSError:
        return ""
