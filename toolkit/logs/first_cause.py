"""Finds the first cause of a failed run in the log of Python, Ray and vLLM processes.

Finds none if the log does not show it.

The error that ended the run is usually a consequence: a worker's error reaches the driver inside another
exception, and the other members of its group complain that it is gone. The exception that ended the program
is traced back to the original one, in whichever process that was raised. If it only reports that a process
died, the first error before it counts.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from verl_doctor.toolkit.logs.lines import Line, log_lines
from verl_doctor.toolkit.logs.python_errors import OVERRIDES, Raised, raised_in
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.text import without_middle

# Exceptions that report another process's end, or their own process's end from outside.
_FOLLOWS = re.compile(
    r"RayActorError|Actor\w*Error|WorkerCrashedError|NodeDiedError|LocalRayletDiedError|OwnerDiedError"
    r"|Object\w*(?:Lost|Died)\w*|\w*DeadError|KeyboardInterrupt|SystemExit|CancelledError"
    r"|BrokenPipeError|Connection(?:Reset|Aborted|Refused)Error|EOFError|ChildFailedError"
    r"|CalledProcessError|ProcessExitedException"
)
_ELSEWHERE = re.compile(
    (
        r"(?:see|check|for)\b.{0,40}\b(?:root cause|stack trace|traceback|inner exception|logs?)\b|(?:died"
        r"|exited) unexpectedly|[Cc]onnection (?:closed|reset) by peer|no materializable trajectories"
    ),
    re.IGNORECASE,
)
# How a client reports that a server failed while it answered.
_SERVER_FAILED = re.compile(
    r"\b(?:status(?: code)?|[Ee]rror code|returned|HTTP|code)[ :=]{1,3}500\b|\b500[ :]{1,2}"
    r"(?:Internal )?Server Error|\b500, message=|Internal Server Error"
)
# How a process reports its death when it cannot raise: Python's faulthandler, glog in Ray's and torch's C++,
# the C++ library, the shell, the kernel.
_DEATH = re.compile(
    r"Fatal Python error: .+|\*\*\* SIG[A-Z]+ received at .*"
    r"|terminate called after throwing an instance of .+|.*\bCheck failed: .+|.*(?:Segmentation fault"
    r"|Bus error|Illegal instruction|Aborted|Killed)(?: +\(core dumped\).*)?|.*"
    r"[Oo]ut of memory: Killed process.*|.*exceeds the memory usage threshold.*"
)
_ABORT = re.compile(r"SIGABRT|Aborted")
_FATAL = re.compile(
    r"\[F\d{3,4} |taking the entire process down|watchdog got stuck|Check failed: |Assertion `"
    r"|^terminate called"
)
_WHAT = re.compile(r"\s*what\(\): +(.+)")
# How ninja and make report that a command of theirs failed: the shell printed above it that the compiler was
# killed.
_BUILD_ENDED = re.compile(r"\s*(ninja: build stopped.*|g?make(?:\[\d+\])?: \*\*\*.*)")
_COMPLAINT = re.compile(
    (
        r"\berror\b|cannot|can't|could not|not found|no such|fail|denied|invalid|unrecognized|unexpected"
        r"|not in struct|refused"
    ),
    re.IGNORECASE,
)
# How bash, dash and zsh report a script's line, what they print of it with `set -x`, and how argparse
# complains.
_SHELL = re.compile(
    r"\S+: line \d+: .+|\S+: \d+: (?:\S+: )?.*(?:not found|[Pp]ermission denied|[Bb]ad substitution"
    r"|No such file.*|parameter not set|[Ss]yntax error.*|can't \w+.*)"
)
# Tidying up that fails, as rm or the shell reports it: no job depends on it.
_TIDYING = re.compile(r"(?:\S+: (?:line )?\d+: )?(?:/\S+/)?rm: (?:cannot remove|Argument list too long)")
_TRACED = re.compile(r"\++ ")
_ARGUMENT = re.compile(
    r"(?!srun|slurmstepd)\S+(?: \S+)?: error: (?:argument |unrecognized arguments"
    r"|the following arguments|ambiguous option).+"
)
_SEARCH_PATH = "Config search path:"
_ENDING = 15  # last lines that may contain a program's final message
_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1"
_LOUD = frozenset({"", "ERROR", "CRITICAL", "FATAL"})
_LONGEST = 500  # characters of a cause
_QUOTED = 20  # characters of a message from which on its repetition is no accident
_MOST = 6  # lines that show it
_NEAR = 200  # lines within which a process continues a report


@dataclass(frozen=True)
class Cause:
    """The first cause as text, as far as the log has it: `words` is one line.

    `lines` are the few lines that show it, `number` is the number of the first of them, and `process` is the
    process that printed it ("WorkerDict pid=12"), "" where unnamed. `frame` is the place in a file where it
    was raised, "" when unknown.
    """

    words: str
    lines: tuple[str, ...]
    number: int
    process: str = ""
    frame: str = ""


def first_cause(text: str) -> Cause | None:
    """Find the first cause; None if the log does not show it: the run may have been ended from outside."""
    lines = list(log_lines(text))
    loud = loud_errors(lines)
    if (first := first_error(loud)) is None:
        return death_in(lines) or _of_complaints(lines)
    return (death_in(lines) if follows(first) else None) or cause_of(first, lines)


def loud_errors(lines: Sequence[Line]) -> list[Raised]:
    """Return the exceptions reported as errors, in order; of a chain the last, with the others attached."""
    return [raised for raised in raised_in(lines) if is_loud(raised.line) and not _is_ignored(raised, lines)]


def is_loud(line: Line) -> bool:
    """Return whether a line is an error, or was printed without a level."""
    return line.level in _LOUD


def last_word(loud: Sequence[Raised]) -> Raised:
    """Return the exception that ended the program.

    It is the program's own last one if it printed any, because workers may go on complaining after it.
    """
    return ([raised for raised in loud if not raised.line.process] or loud)[-1]


def first_error(loud: Sequence[Raised]) -> Raised | None:
    """Return the original exception; one that `follows` only if there is no other."""
    if not loud:
        return None
    first = last_word(loud).first
    if not follows(first):
        return _of_server(first, loud) or _as_first_printed(first, loud)
    return next((raised.first for raised in loud if not follows(raised.first)), first)


def _of_server(first: Raised, loud: Sequence[Raised]) -> Raised | None:
    """Return what a server of the job raised shortly before, if an exception reports that it failed.

    None for any other exception.
    """
    if not is_server_failure(first):
        return None
    before = (
        raised.first
        for raised in reversed(loud)
        if raised.line.process != first.line.process and 0 < first.began - raised.line.number <= _NEAR
    )
    return next((raised for raised in before if not follows(raised)), None)


def is_server_failure(raised: Raised) -> bool:
    """Return whether an exception reports that a server failed while it answered.

    The job's own have no certificates.
    """
    return _SERVER_FAILED.search(raised.message) is not None and "https://" not in raised.message


def follows(raised: Raised) -> bool:
    """Return whether an exception reports another process's end, or its own process's end from outside.

    So does one that only hands on what a task raised, if the log lacks that.
    """
    hands_on = raised.name == "RayTaskError" and raised.message.startswith("ray::") and raised.before is None
    return bool(hands_on or _FOLLOWS.fullmatch(raised.name) or _ELSEWHERE.search(raised.message))


def _as_first_printed(first: Raised, all_of_them: Sequence[Raised]) -> Raised:
    """Return the same error as printed by the process in which it occurred.

    That output comes before the exception that it caused.

    That exception may quote the error at the end of its own message.
    """
    earlier = [
        other
        for raised in all_of_them
        for other in raised.chain
        if other.message and other.line.number < first.line.number
    ]
    same = (other for other in earlier if other.message == first.message and other.name == first.name)
    words = _first_line(first.message)
    quoted = (
        other
        for other in earlier
        if _QUOTED <= len(_first_line(other.message)) < len(words)
        and words.endswith(f": {_first_line(other.message)}")
        and not follows(other)
    )
    return next(same, None) or next(quoted, None) or first


def _first_line(message: str) -> str:
    return message.partition("\n")[0]


def _is_ignored(raised: Raised, lines: Sequence[Line]) -> bool:
    """Return whether Python reports the exception as ignored, at the end of an object's life."""
    at = _place(lines, raised.began)
    near = reversed(lines[max(at - _NEAR, 0) : at])
    before = next((line for line in near if line.process == raised.line.process), None)
    return before is not None and before.text.startswith("Exception ignored in")


def _place(lines: Sequence[Line], number: int) -> int:
    """Return the index of the first line with this number; a progress bar makes several lines of one."""
    return bisect_left(lines, number, key=lambda line: line.number)


def death_in(lines: Sequence[Line]) -> Cause | None:
    """Return the report of the first process that died without an exception, if the log has one."""
    for at, line in enumerate(lines):
        if line.level in _LOUD and _DEATH.fullmatch(line.text):
            if _ABORT.search(line.text) and (reason := _reason(lines, at)) is not None:
                return complaint([reason, line])
            what = next((match for other in lines[at : at + 4] if (match := _WHAT.match(other.text))), None)
            if what is None and line.text.strip() == "Killed":
                what = next(
                    (
                        match
                        for other in lines[at : at + _ENDING]
                        if (match := _BUILD_ENDED.match(other.text))
                    ),
                    None,
                )
            words = line.text.strip() + (f": {what[1]}" if what else "")
            return Cause(
                without_middle(words, _LONGEST), _shown(lines[at : at + 3]), line.number, line.process
            )
    return None


def _reason(lines: Sequence[Line], at: int) -> Line | None:
    """Return the last fatal error that a process printed before it aborted itself."""
    before = (line for line in reversed(lines[max(at - _ENDING, 0) : at]) if _same_process(line, lines[at]))
    return next((line for line in before if line.level == "FATAL" or _FATAL.search(line.text)), None)


def _same_process(line: Line, other: Line) -> bool:
    return (
        not line.process or not other.process or line.process == other.process or "pid=" not in line.process
    )


def _of_complaints(lines: Sequence[Line]) -> Cause | None:
    """Return the complaint of Hydra, argparse or a shell, without a traceback, at the end of the log."""
    written = [line for line in lines if line.text.strip() and not line.text.startswith(_HYDRA)][-_MOST:]
    loud = [line for line in written if line.level in _LOUD]
    begin = next((at for at, line in enumerate(loud) if _COMPLAINT.search(line.text)), None)
    if begin is None:
        return None
    words = " ".join(line.text.strip() for line in loud[begin : begin + 3])
    return Cause(
        without_middle(words, _LONGEST), _shown(loud[begin:]), loud[begin].number, loud[begin].process
    )


def complaint_in(lines: Sequence[Line]) -> tuple[Cause, Phase] | None:
    """Return what ended a program that raised nothing, and its phase.

    It is the final message of the shell, an argument parser or Hydra.
    """
    written = [line for line in without_tidying(lines) if line.text.strip()]
    if (short := _short_message(lines)) is not None:
        return short, "composition"
    if (argument := refused_argument(written)) is not None:
        return argument, "import"
    last = takewhile(lambda line: _TRACED.match(line.text) or _SHELL.match(line.text), reversed(written))
    shell = [line for line in last if _SHELL.match(line.text)]
    return (complaint([shell[-1]]), "shell") if shell else None


def without_tidying(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without complaints of `rm` beside a job that has started.

    Before that, a script may end with one.
    """
    began = next((line.number for line in lines if "pid=" in line.process), math.inf)
    return [line for line in lines if line.number < began or not _TIDYING.match(line.text)]


def refused_argument(lines: Sequence[Line]) -> Cause | None:
    """Return the argument that a parser refused before it ended its process.

    A server that verl starts has its own parser.
    """
    found = next((line for line in lines if line.level in _LOUD and _ARGUMENT.match(line.text)), None)
    return None if found is None else complaint([found])


def _short_message(lines: Sequence[Line]) -> Cause | None:
    """Return Hydra's complaint about a configuration that it cannot compose.

    The complaint precedes the hint about the variable for a traceback.
    """
    headers = [at for at, line in enumerate(lines) if line.text.startswith(_HYDRA)]
    if not headers or any(line.text.startswith(OVERRIDES) for line in lines[: headers[0]]):
        return None
    before = lines[: headers[0]]
    search = next((at for at in reversed(range(len(before))) if before[at].text == _SEARCH_PATH), None)
    if search is not None and len(before) - search <= _ENDING:
        before = before[:search]
    end = len(before)
    while end and not before[end - 1].text.strip():
        end -= 1
    begin = end
    while begin and end - begin < _MOST and _is_of_message(before[begin - 1]):
        begin -= 1
    return complaint(before[begin:end]) if begin < end else None


def _is_of_message(line: Line) -> bool:
    """Return whether a line without a logger's header may belong to a message of Hydra."""
    return bool(line.text.strip()) and line.level == "" and not _TRACED.match(line.text)


def complaint(lines: Sequence[Line]) -> Cause:
    """Return these lines as a complaint."""
    words = " ".join(line.text.strip() for line in lines)
    return Cause(without_middle(words, _LONGEST), _shown(lines), lines[0].number, lines[0].process)


def cause_of(raised: Raised, lines: Sequence[Line]) -> Cause:
    """Return an exception as text, with the lines that show it."""
    more = len(raised.message.split("\n"))
    at = lines.index(raised.line, _place(lines, raised.line.number))
    near = (line for line in lines[at : at + _NEAR] if line.has_labels_of(raised.line))
    following = list(islice(near, min(more, _MOST - 1)))
    return Cause(
        without_middle(raised.words, _LONGEST),
        _shown([*([raised.frame] if raised.frame else []), *following]),
        raised.line.number,
        raised.line.process,
        raised.frame.text.strip() if raised.frame else "",
    )


def _shown(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(line.written[:_LONGEST] for line in lines[:_MOST])
