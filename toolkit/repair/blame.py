"""Decides which new findings a repair is responsible for: those about what it changed.

Others may have appeared by themselves meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import (
    Change,
    CompileBytecode,
    InstallPackages,
    NewFile,
    NewLink,
    RemoveFile,
    ReplaceFile,
    RunCommand,
)
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.repair.plan import Plan
from verl_doctor.toolkit.rule import Check, Finding, SubjectKind
from verl_doctor.toolkit.target import Target

# Facts that other processes may change while a repair is judged.
_EXTERNAL_SUBJECTS: frozenset[SubjectKind] = frozenset(
    {
        "actor",
        "address",
        "cluster",
        "column",
        "device",
        "driver",
        "folder",
        "interface",
        "limit",
        "memory",
        "model",
        "node",
        "port",
        "process",
        "resource",
        "rung",
        "tracker",
        "worker group",
    }
)
_EXTERNAL = ("connections", "gpu", "host", "leftovers", "network", "processes", "ray")
_INSTALLED: frozenset[SubjectKind] = frozenset(
    {"attention backend", "interpreter", "library", "package", "plugin", "source", "symbol"}
)
_COMMON_INPUTS = frozenset({Machine, Target, Marker})
_COLLECTORS = "verl_doctor.toolkit.collectors."


@dataclass(frozen=True)
class Blame:
    """What a plan changes, and the facts that its rule and its fix read."""

    paths: frozenset[str]
    variables: Mapping[str, str | None]
    installs: bool
    facts: frozenset[type]

    def is_about(self, finding: Finding) -> bool:
        """Return whether a finding is about something that was changed."""
        subject = finding.subject
        if any(self._changed(path) for path in _places(finding)):
            return True
        if subject is None:
            return False
        if subject.kind == "variable":
            return not self.variables.keys().isdisjoint(name.strip() for name in subject.name.split(","))
        if subject.kind == "symbol":
            return any(_defines(path, subject.name) for path in self.paths)
        if self.installs and subject.kind in _INSTALLED:
            return True
        return subject.name in self.variables.values()

    def is_responsible(self, check: Check, finding: Finding, before: Collection, after: Collection) -> bool:
        """Return whether the repair is responsible for a new finding.

        If fields do not decide, whether it may have caused the finding.
        """
        if self.is_about(finding):
            return True
        if finding.subject is not None and finding.subject.kind in _EXTERNAL_SUBJECTS:
            return False
        if finding.location is not None and not self.variables:
            return False
        return self.may_concern(check, before, after)

    def may_concern(self, check: Check, before: Collection, after: Collection) -> bool:
        """Return whether a rule reads a fact behind the repair, and its other inputs are unchanged.

        The repair was based on that fact.
        """
        needs = {need.fact for need in check.needs}
        if not needs & self.facts:
            return False
        external = [fact for fact in needs - self.facts if _is_external(fact)]
        return all(_is_unchanged(fact, before, after) for fact in external)

    def _changed(self, path: str) -> bool:
        real = os.path.realpath(path)
        return any(Path(real).is_relative_to(changed) for changed in self.paths)


def blame_of(session: Session, plan: Plan, paths: Iterable[str]) -> Blame:
    """Return the blame for a plan that writes to these `paths`."""
    rule = session.registry.check(plan.code)
    needs = (*plan.fix.needs, *(rule.needs if rule is not None else ()))
    return Blame(
        paths=frozenset(map(os.path.realpath, paths)),
        variables={variable.name: variable.value for variable in plan.variables},
        installs=any(isinstance(change, (InstallPackages, RunCommand)) for change in plan.changes),
        facts=frozenset(need.fact for need in needs) - _COMMON_INPUTS,
    )


def paths_of(changes: Iterable[Change]) -> Iterator[str]:
    """Yield the files and folders that changes write."""
    for change in changes:
        if isinstance(change, (ReplaceFile, NewFile, RemoveFile, NewLink)):
            yield str(change.path)
        elif isinstance(change, CompileBytecode):
            yield from map(str, change.roots)


def _places(finding: Finding) -> Iterator[str]:
    yield from (location.path for location in (finding.location, *finding.also) if location is not None)
    if finding.subject is not None and finding.subject.name.startswith("/"):
        yield finding.subject.name


def _defines(path: str, symbol: str) -> bool:
    """Return whether a dotted name belongs to the module of this file."""
    if not path.endswith(".py"):
        return False
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    words = symbol.split(".")
    return any(module.endswith("." + ".".join(words[:count])) for count in range(len(words), 1, -1))


def _is_unchanged(fact: type, before: Collection, after: Collection) -> bool:
    return not (before.has(fact) and after.has(fact)) or before.get(fact) == after.get(fact)


def _is_external(fact: type) -> bool:
    module = fact.__module__
    return module.startswith(_COLLECTORS) and module.removeprefix(_COLLECTORS).split(".")[0] in _EXTERNAL
