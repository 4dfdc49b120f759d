"""What `verl-doctor warmup` has done: on each node the files, and on this one what is compiled for the job."""

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
        """What it reported, or that it did not report."""
        return "could_not_check" if self.pages is None else self.pages.verdict


EngineOutcome = Literal["written", "nothing new", "failed", "planned", "not applicable"]


@dataclass(frozen=True)
class Growth:
    """What came into one cache: files and bytes."""

    holds: str
    path: str
    files: int
    size: int


@dataclass(frozen=True)
class EngineCaches:
    """What became of it, why, in how many seconds, and the caches that have grown."""

    outcome: EngineOutcome
    reason: str = ""
    seconds: float = 0.0
    grown: tuple[Growth, ...] = ()


@dataclass(frozen=True)
class Warmup:
    """`nodes` are those whose files were looked at, none when no file was named. `bytecode` are the repairs of PY103.

    `engine` is what became of its caches, None where that was not asked for.
    """

    nodes: tuple[Node, ...] = ()
    bytecode: tuple[Repair, ...] = ()
    engine: EngineCaches | None = None
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        verdicts = {node.verdict for node in self.nodes}
        if self.engine is not None and self.engine.outcome == "failed":
            return "failures"
        if "failures" in verdicts or any(repair.outcome in _FAILED for repair in self.bytecode):
            return "failures"
        return "could_not_check" if "could_not_check" in verdicts else "ok"

    def exit_code(self) -> ExitCode:
        """0 all that was named is resident, 1 something is not, 3 unknown."""
        return {"ok": ExitCode.OK, "failures": ExitCode.FAILED, "could_not_check": ExitCode.COULD_NOT_CHECK}[
            self.verdict
        ]
