"""A tiny verl, and two generations of a tiny vLLM, for tests of fixes that must leave a file working with both."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.miniatures.source_trees import SERVER, verl, vllm
from verl_doctor.toolkit.change import Fix, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.result import CheckResult
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.testing import run_check


@dataclass
class PatchedTree:
    """`server` is verl's async server, `old` and `new` the files of vLLM before and after a drift."""

    folder: Path
    server: str
    old: dict[str, str]
    new: dict[str, str]
    check: Check
    fix: Fix
    others: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.verl = verl(self.folder, self.server, **self.others)
        self.path = Path(self.verl.folder, SERVER)
        self.path.write_bytes(self.server.encode())
        self.trees: dict[str, Tree] = {
            "old": vllm(self.folder / "old", self.old, "0.11.0"),
            "new": vllm(self.folder / "new", self.new, "0.12.0"),
        }

    def uses(self, side: str) -> VllmUses:
        found = read_trees(VllmUses, self.verl, self.trees[side])
        assert isinstance(found, VllmUses)
        return found

    def judged(self, side: str) -> CheckResult:
        return run_check(self.check, self.uses(side))

    def plans(self, word: str = "verl-doctor") -> list[list[ReplaceFile] | Refusal]:
        """The fix's plan for each finding, each plan once."""
        uses = self.uses("new")
        asked = [finding for finding in run_check(self.check, uses).findings if finding.fix == self.fix.id]
        assert asked, "no finding asks for this fix"
        facts: dict[type, Any] = {VllmUses: uses, SourceFiles: SourceFiles(), Marker: Marker(word)}
        needed = {need.parameter: facts[need.fact] for need in self.fix.needs}
        found: list[list[ReplaceFile] | Refusal] = []
        for finding in asked:
            plan = self.fix.plan(finding, **needed)
            if plan not in found:
                found.append(plan)
        return found

    def refusal(self) -> str:
        (plan,) = self.plans()
        assert isinstance(plan, Refusal), plan
        return plan.reason

    def repair(self) -> str:
        """Repair everything, and check the invariants of every repair; return the server's text."""
        before = self.path.read_bytes()
        assert self.judged("old").status == "pass"
        while any(finding.fix == self.fix.id for finding in self.judged("new").findings):
            plan = self.plans()[0]
            assert not isinstance(plan, Refusal), plan.reason
            for change in plan:
                assert change.before == change.path.read_bytes()
                change.path.write_bytes(change.after)
        assert self.judged("old").status == "pass"
        assert self.path.read_bytes() != before
        return self.path.read_bytes().decode()

    def run(self, side: str, more: str = "") -> dict[str, Any]:
        """Execute the server's text, and more after it, with a generation of vLLM; return the bound names."""
        with importable(Path(self.trees[side].folder).parent):
            names: dict[str, Any] = {"__name__": "server"}
            exec(compile(self.path.read_bytes(), str(self.path), "exec"), names)
            exec(more, names)
            return names


@contextmanager
def importable(folder: Path, package: str = "vllm"):
    """Let an import of the package find the one in this folder."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]

    forget()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        forget()
