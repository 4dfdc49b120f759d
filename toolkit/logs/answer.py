"""What was read from the logs, what it shows, and what rules report about it on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.logs.diagnosis import Reading
from verl_doctor.toolkit.logs.recognised import Kind as FileKind
from verl_doctor.toolkit.logs.timeline.timeline import Timeline


@dataclass(frozen=True)
class Confirmation:
    """What a rule reports on this machine about a cause: one of its findings, or why it has none.

    `place` and `remedy` are the finding's, "" if the rule has none. `is_finding`: the rule has found it.
    """

    code: str
    message: str
    place: str = ""
    remedy: str = ""
    is_finding: bool = True

    @property
    def line(self) -> str:
        """The rule, the place, and the first step of the remedy, or the message where there is no remedy."""
        at = f" {self.place}" if self.place else ""
        return f"{self.code}{at}: {self.remedy.partition('; ')[0] or self.message}"

    @property
    def words(self) -> str:
        """The rule, its message and the place."""
        return f"{self.code}: {self.message}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True)
class Answer:
    """What was read and found, and how the start-up time was spent.

    `notes` list what was skipped; `unread` names logs that may not have been read completely. `confirmed`
    holds what the rules report here, by the cause's code, if they were run; without an entry there, no rule
    looks for the cause. `fixes` holds the fix for a fault
    and its safety, by the fault's code. `arguments` are the options that name the target.
    """

    reading: Reading
    files: tuple[str, ...]
    size: int
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    confirmed: Mapping[str, tuple[Confirmation, ...]] | None = None
    seconds: float = 0.0
    timeline: Timeline = field(default_factory=Timeline)
    fixes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    other_files: Mapping[str, FileKind] = field(default_factory=dict)
    """What the files are if none of them is a log."""

    @property
    def verdict(self) -> Literal["ok", "failures", "not_determined"]:
        """The verdict in one word: nothing failed, a cause was named, or no cause could be named."""
        if self.reading.first is not None:
            return "failures"
        return "ok" if self.exit_code is ExitCode.OK else "not_determined"

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to read."""
        return not self.reading.total

    @property
    def exit_code(self) -> ExitCode:
        """1 if a cause was named, 0 if nothing failed, 3 otherwise.

        3 means that something failed for an undetermined reason, or that the logs were unreadable, empty, or
        no logs.
        """
        if self.reading.first is not None:
            return ExitCode.FAILED
        found = self.reading.error is not None or self.reading.consequences
        unjudged = found or self.unread or self.is_empty or self.other_files
        return ExitCode.COULD_NOT_CHECK if unjudged else ExitCode.OK
