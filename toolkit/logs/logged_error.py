"""One report in a log, and what two reports have in common."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from verl_doctor.toolkit.logs.blame import (
    Blame,
)
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.signature import Kind, Signature
from verl_doctor.toolkit.logs.timeline.clock import Clock
from verl_doctor.toolkit.rule import Phase

LONGEST = 400
NEAR = 200  # lines before an unknown error in which its own process may have logged the reason
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{2,5}\b|\bport[ =:]{1,3}\d{2,5}\b")


@dataclass(frozen=True)
class LoggedError:
    """One report in a log: where, by which process, in which words, and what these are known to prove."""

    source: str
    number: int
    process: str
    words: str
    lines: tuple[str, ...]
    signature: Signature | None = None
    times: int = 1
    when: float = math.inf
    """On the scale of `timeline.clock`, as far as the lines before it show."""
    phase: Phase | None = None
    """When it struck, as far as the log shows."""
    blame: Blame | None = None
    """Where the fault lies, for an exception that no signature attributes to the environment."""
    settings: tuple[str, ...] = ()
    """The settings that a refusal names, where a signature matches it."""
    stage: str = ""
    """The stage of the job, if a signature has a remedy for it."""
    traits: frozenset[str] = frozenset()
    """What the log reveals about the machine, and of the releases that the remedy proposes.

    A remedy must not contradict it.
    """
    specific: str = ""
    """The releases without a known fault that the exception shows, or how to find the failed kernel.

    It precedes any remedy.
    """
    advice: str = ""
    """The advice derived from the exception itself, if there is no remedy or only a general one."""
    then: str = ""
    """What the run did instead of what failed, if it survived it."""

    @property
    def kind(self) -> Kind | Literal["unknown"]:
        """What it is known to prove."""
        return "unknown" if self.signature is None else self.signature.kind

    @property
    def is_complaint(self) -> bool:
        """Whether it reports that something failed or was ended."""
        return self.kind not in {"hint", "note"}

    @property
    def is_coded(self) -> bool:
        """Whether it has its own page of documentation."""
        return self.signature is not None and bool(self.signature.code)

    @property
    def is_strong(self) -> bool:
        """Whether it is a cause by itself."""
        return self.kind == "cause"


def only_follows(error: LoggedError) -> bool:
    """Return whether an error reports that something else failed or was ended."""
    return error.kind in {"consequence", "ended"}


def is_unexplained(error: LoggedError | None) -> bool:
    """Return whether no error, or only a consequence, shows why the run failed."""
    return error is None or only_follows(error)


def code_of(error: LoggedError) -> tuple[str, str]:
    """Return what two reports of the same fault have in common: its code and title, or the words."""
    return (error.signature.code, error.signature.title) if error.signature is not None else ("", error.words)


def distinct(errors: Iterable[LoggedError]) -> tuple[LoggedError, ...]:
    """Return each report once, where it was first logged, with the number of occurrences."""
    found: dict[tuple[str, str], LoggedError] = {}
    for error in errors:
        known = found.setdefault(code_of(error), error)
        if known is not error:
            found[code_of(error)] = replace(known, times=known.times + 1)
    return tuple(found.values())


def with_address(error: LoggedError, errors: Sequence[LoggedError]) -> LoggedError:
    """Return the error with another line of the same fault that has the address, if its own lines do not."""
    if any(_ADDRESS.search(line) for line in error.lines):
        return error
    same = (other.lines for other in errors if code_of(other) == code_of(error))
    with_address = next((line for lines in same for line in lines if _ADDRESS.search(line)), None)
    return error if with_address is None else replace(error, lines=(*error.lines, with_address))


def dated(error: LoggedError, lines: Sequence[Line]) -> LoggedError:
    """Return the error with the time of its line, or the nearest time before it."""
    at = bisect_right(lines, error.number, key=lambda line: line.number)
    near = (Clock().read(line.written) for line in reversed(lines[max(at - NEAR, 0) : at]))
    return replace(error, when=next((time for time in near if time is not None), math.inf))
