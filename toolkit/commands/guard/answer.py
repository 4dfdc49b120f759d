"""The result of `guard`. Everything here loads quickly, because the gate runs before every job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.commands.guard import guard
from verl_doctor.toolkit.commands.guard.guard import Term, Verdict
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.verdict import EXIT_CODES


@dataclass(frozen=True)
class GuardAnswer(Answer):
    """The result of judging what was agreed.

    `lock` is the file of the agreement, "" for none; `outweighed` is what another file overrides.
    `goes_when_unsure`: the job starts if this cannot be judged.
    """

    terms: tuple[Term, ...]
    lock: str
    outweighed: Mapping[str, str]
    goes_when_unsure: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict on all terms."""
        return guard.verdict(self.terms)

    def document(self) -> Mapping[str, Any]:
        """Return the terms in JSON types."""
        return guard.document(self.terms, self.lock, self.outweighed)

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return nothing: stdout belongs to the job, and the reason for stopping goes to stderr."""
        return ()

    def exit_code(self) -> ExitCode:
        """Return 0 if the job may start, 1 if it may not, 3 if this could not be judged."""
        verdict = self.verdict
        return ExitCode.OK if verdict == "could_not_check" and self.goes_when_unsure else EXIT_CODES[verdict]
