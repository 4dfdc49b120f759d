"""Lines that show that a run failed but not why.

These are final messages of launchers and job managers, exit codes, and errors of loggers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.first_cause import Cause, complaint, without_tidying
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import OVERRIDES

_ERRORS = frozenset({"ERROR", "CRITICAL", "FATAL"})
_LAST = 15  # last lines that may contain a program's final message
# How launchers, shells, job managers, CI systems and Kubernetes report the end of a failed run. A code of 0
# is no failure.
_FAILED = re.compile(
    r"""
    \bjob\b .{0,80}? \b(?:failed|crashed|aborted)\b
  | \b(?:exit(?:ed|ing)?|return(?:ed)?|terminated|completed|failed|died) (?:\s with)?
        (?:\s a)? (?:\s non-?zero)? \s (?:exit[ -]?)? (?:code|status|rc)
        \s? [:=]? \s? \(? -? (?!0+\b)\d+
  | \bexit[ _-]?(?:code|status) \s* [:=]? \s* \(? -? (?!0+\b)\d+
  | \breturned\ non-zero | \bnon-zero\ exit\b
  | ^\++\ exit\ (?!0\b)\d+
  | \bmake(?:\[\d+\])?:\ \*\*\*
  | ^(?:\#\#)?\[error\] | ^::error
  | \b(?:phase|state|status|conclusion|result)"? \s? [:=] \s? "?(?:failed|failure|error)\b
  | ^\S{1,60}:\ (?:(?:fatal\ )?error|fatal|panic):\ | ^(?:fatal|panic):\ | ^FATAL\b
  | \(core\ dumped\)|\bdied\ with\ <Signals\.|\bterminated\ by\ signal|\bkilled\ by\ signal
  | ^Killed$ | \bfinished:\ failure\b | \brc\s?[=:]\s?-?[1-9]\d*\b | ^Aborted$ | ^Segmentation\ fault
  | \bpanicked\ at\b | ^CMake\ Error\b
  | ^Set\ the\ environment\ variable\ HYDRA_FULL_ERROR=1
  | \bCrashLoopBackOff\b|\bBack-off\ restarting\ failed\ container
  | \bWarning\s+(?:Failed|BackOff|Evicted|Unhealthy)\w*\s
    """,
    re.VERBOSE | re.IGNORECASE,
)
# How a complaining line begins, without the level of a logger.
_COMPLAINS = re.compile(
    r"\W*(?:error|fatal|failure|exception|panic|abort(?:ed|ing)?|failed|unable to|cannot|could not|can't)\b|"
    r"\S+: (?:can't|cannot|could not|unable to|no such|command not found|permission denied)|"
    r".*: (?:No such file or directory|[Pp]ermission denied|command not found)$",
    re.IGNORECASE,
)
# Errors that loggers also print at the start of healthy runs.
_HARMLESS = re.compile(
    r"Unable to register cu\w+ factory|computation placer already registered|metrics exporter agent"
    r"|Cannot use FA version|Failed to start the dashboard|dashboard agent|TensorRT"
    r"|Overriding a previously registered kernel|usage stats|num_errors|Unclosed (?:client session"
    r"|connector)|leaked \w+ objects|Address family not supported|has NOT been destroyed"
    r"|not a git repository|git root error"
)
_NO_ERROR = re.compile(
    r"\b(?:no|0|without) (?:errors?|failures?)\b|\bnot an error\b|\b(?:errors?|failures?|failed)[=: ]+0\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"\b(?:code|status|rc)\b.{0,12}?-?\d")
_WORD = re.compile(r"[^\W\d_]{2}")
_FRAME = re.compile(r'\s*File "[^"]+", line \d+, in \S')
_HEAD = "Traceback (most recent call last):"


def failure_in(lines: Sequence[Line], survived: int, *, finished: bool) -> Cause | None:
    """Return the line that shows that a run failed; None for a run that may have succeeded.

    The run continued after everything up to the line `survived`. If it `finished`, only reports of its end
    count.
    """
    rest = [
        line
        for line in without_tidying(lines)
        if line.number > survived and _WORD.search(line.text) and _may_show(line)
    ]
    ended = sorted(
        (line for line in rest if _FAILED.search(line.text)), key=lambda line: not _CODE.search(line.text)
    )
    if finished:
        return complaint(ended[:1]) if ended else None
    logged = [line for line in rest if line.level in _ERRORS and line not in ended]
    last = [line for line in rest[-_LAST:] if line.level == "" and _COMPLAINS.match(line.text)]
    cut_off = [line for line in rest[-_LAST:] if line.text.endswith(_HEAD) or _FRAME.match(line.text)]
    found = next((found for found in (logged, last, ended, cut_off) if found), None)
    return complaint(found[:1]) if found else None


def _may_show(line: Line) -> bool:
    """Return whether a line is no warning, no harmless error and no repetition of the command."""
    if line.level not in _ERRORS | {""} or line.text.startswith(("+ ", OVERRIDES)):
        return line.text.startswith("+ exit")
    return not (_HARMLESS.search(line.text) or _NO_ERROR.search(line.text))
