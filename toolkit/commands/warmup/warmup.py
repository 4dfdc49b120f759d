"""The results of `verl-doctor warmup`: files on each node, and what is compiled for the job on this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.result import Repair
from verl_doctor.toolkit.warm.summary import Summary, Verdict

HERE = "this machine"
NAME_ONE = "give a launch script, --model DIR, --data FILE or --path PATH"

_FAILED = frozenset({"still failing", "made worse, undone"})


@dataclass(frozen=True)
class Node:
    """One machine. `missing` is why it did not report."""

    name: str
    pages: Summary | None = None
    missing: str = ""

    @property
    def verdict(self) -> Verdict:
        """Its verdict, or that it did not report."""
        return "could_not_check" if self.pages is None else self.pages.verdict


EngineOutcome = Literal["written", "nothing new", "failed", "planned", "not applicable"]


@dataclass(frozen=True)
class Growth:
    """What was added to one cache: files and bytes."""

    holds: str
    path: str
    files: int
    size: int


@dataclass(frozen=True)
class EngineCaches:
    """The state of the engine's caches, the reason, the duration in seconds, and the grown caches."""

    outcome: EngineOutcome
    reason: str = ""
    seconds: float = 0.0
    grown: tuple[Growth, ...] = ()


@dataclass(frozen=True)
class Warmup:
    """`nodes` are those examined for files, none if no file was named. `bytecode` are the repairs of PY103.

    `engine` is the state of its caches, None if not requested.
    """

    nodes: tuple[Node, ...] = ()
    bytecode: tuple[Repair, ...] = ()
    engine: EngineCaches | None = None
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        verdicts = {node.verdict for node in self.nodes}
        if self.engine is not None and self.engine.outcome == "failed":
            return "failures"
        if "failures" in verdicts or any(repair.outcome in _FAILED for repair in self.bytecode):
            return "failures"
        return "could_not_check" if "could_not_check" in verdicts else "ok"

    def exit_code(self) -> ExitCode:
        """Return 0 if everything named is resident, 1 if something is not, 3 if unknown."""
        return {"ok": ExitCode.OK, "failures": ExitCode.FAILED, "could_not_check": ExitCode.COULD_NOT_CHECK}[
            self.verdict
        ]
