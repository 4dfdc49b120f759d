"""What `verl-doctor warmup` has done: on each node the files, and on this one what is compiled for the job."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.result import Repair
from verl_doctor.toolkit.warm_summary import Summary, Verdict

HERE = "this machine"
NAME_ONE = "give a launch script, --model DIR, --data FILE or --path PATH"

_FAILED = frozenset({"still failing", "made worse, undone", "refused"})


@dataclass(frozen=True)
class Node:
    """One machine. `missing` says why it told nothing."""

    name: str
    pages: Summary | None = None
    missing: str = ""

    @property
    def verdict(self) -> Verdict:
        """What it has told, or that it has told nothing."""
        return "could_not_check" if self.pages is None else self.pages.verdict


@dataclass(frozen=True)
class Warmup:
    """`nodes` are those whose files were looked at, none when no file was named. `bytecode` are the repairs of PY103."""

    nodes: tuple[Node, ...] = ()
    bytecode: tuple[Repair, ...] = ()
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        said = {node.verdict for node in self.nodes}
        if "failures" in said or any(one.outcome in _FAILED for one in self.bytecode):
            return "failures"
        return "could_not_check" if "could_not_check" in said else "ok"

    def exit_code(self) -> int:
        """0 all that was named is resident, 1 something is not, 3 it could not be told."""
        return {"ok": 0, "failures": 1, "could_not_check": 3}[self.verdict]
