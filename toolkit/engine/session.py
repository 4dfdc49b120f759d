"""One run of the doctor: a target, the registry, the configuration, and as many fresh looks as needed."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.packages.installer_limit import InstallerLimit
from verl_doctor.toolkit.engine import factsfile, registry
from verl_doctor.toolkit.engine.collect import Collection, Facts, Memory
from verl_doctor.toolkit.engine.config import Config, load
from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.engine.judge import DEEP, Selection, beyond, judge, not_selected, unknown_words
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.unused_ignores import announce_unused
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.process.gc_pause import paused_collection
from verl_doctor.toolkit.result import CheckResult, Report, Unchanged
from verl_doctor.toolkit.system.own_files import TOOLKIT
from verl_doctor.toolkit.system.sites import Sites
from verl_doctor.toolkit.target import Options, Target, UsageError

_INSTALLED = re.compile(r"verl_doctor-(.+)\.dist-info")


@dataclass(frozen=True)
class Session:
    """What stays the same during a run. Every look at the target collects its facts again."""

    machine: Machine
    target: Target
    config: Config
    registry: Registry
    selection: Selection
    facts_file: Path | None = None
    begun: list[Collection] = field(default_factory=list)
    """Collections begun while the rules were loaded, for the first look."""
    memory: Memory | None = None
    """What an earlier run found, for a look at this machine as it is."""
    offline: bool = False
    """Whether the package index is not queried: fixes that need it are refused."""
    installer_limit: InstallerLimit = field(default_factory=InstallerLimit)
    """How long a package installer may take to find versions that agree."""

    def look(self, known: Mapping[type, Any] | None = None) -> Collection:
        """Return a fresh collection, which reuses nothing from an earlier look except `known` facts."""
        given: dict[type, Any] = {
            Machine: self.machine,
            Target: self.target,
            Config: self.config,
            Marker: Marker(self.config.marker),
            Sites: Sites(self.config.sites, self.config.path),
            PluginProblems: self.registry.problems,
            InstallerLimit: self.installer_limit,
            **(known or {}),
        }
        if self.offline:
            from verl_doctor.toolkit.collectors.packages.resolution import Resolution  # noqa: PLC0415 - only for plans

            given[Resolution] = Unknown("only verl-doctor fix queries the package index")
        if self.begun:
            given[Interpreter] = self.begun.pop().get(Interpreter)
        if self.facts_file is not None:
            given = {**factsfile.load(self.facts_file, self.registry.collectors), **given}
        if self.memory is None or self.facts_file is not None or known:
            return Collection(self.registry.collectors, given)
        collection = Collection(self.registry.collectors, given, self.memory)
        self.memory.compare(collection)
        return collection

    def check(self, collection: Collection, watch: Callable[[str], None] = lambda _: None) -> Report:
        """Judge one look."""
        started = time.perf_counter()
        selection = self.selection if self.facts_file is None else self._selection_elsewhere(collection)
        with paused_collection():
            results = judge(self.registry.checks, collection, selection, today=date.today(), watch=watch)  # noqa: DTZ011
        return Report(
            target=self._described(collection),
            results=results,
            not_selected=not_selected(self.registry.checks, collection, results),
            unexamined=self._unexamined(collection, results),
            seconds=time.perf_counter() - started,
            fix_safety={fix.id: fix.safety for fix in self.registry.fixes},
            fixes_of_variables=frozenset(fix.id for fix in self.registry.fixes if fix.sets_variables),
            unchanged=self._unchanged(collection, results),
        )

    def _selection_elsewhere(self, collection: Facts) -> Selection:
        """Return what is selected for the launch files of a facts file: the command line names none."""
        from verl_doctor.toolkit.collectors.launch.launch import Launch  # noqa: PLC0415 - only for facts files

        launch = collection.get(Launch)
        files = () if isinstance(launch, Unknown) else launch.files
        return replace(self.selection, ignores=self.config.ignores_for([Path(file) for file, _ in files]))

    def _described(self, collection: Facts) -> Mapping[str, Any]:
        """Return what was examined, with the options that examine the same again."""
        fields = describe(self.target, collection, self.facts_file)
        if self.facts_file is not None:
            return fields
        chosen = self.selection
        options = ["--deep"] if chosen.costs >= DEEP else []
        options += ["--select", ",".join(chosen.select)] if chosen.select != self.config.select else []
        options += ["--ignore", ",".join(chosen.ignore)] if chosen.ignore else []
        return {**fields, "arguments": [*options, *fields["arguments"]]}

    def _unchanged(self, collection: Collection, results: Iterable[CheckResult]) -> Unchanged | None:
        """Return the results that an earlier run had found, None where there are none."""
        if (memory := collection.memory) is None:
            return None
        codes = {result.code for result in results if result.remembered}
        return Unchanged(len(codes), round(memory.age())) if codes else None

    def _unexamined(self, collection: Facts, results: Iterable[CheckResult]) -> str:
        """Return why there is no verl to judge; "" where there is one, or where no selected rule needs it."""
        why = without_verl(collection)
        if why and self.selection.select and all(result.reason != why for result in results):
            return ""
        return why

    def started_anew(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Session:
        """Return the same session, as if the shell and Ray had been restarted with changed environments."""
        machine = replace(self.machine, environ=change(self.machine.environ), as_started=change)
        return replace(self, machine=machine, begun=[], memory=None)

    def at_cost(self, *more: str) -> Session:
        """Return the same session, in which rules of these costs may be judged too."""
        return replace(self, selection=replace(self.selection, costs=self.selection.costs | set(more)))

    def narrowed(self, codes: tuple[str, ...]) -> Session:
        """Return the same session, restricted to these rules."""
        return replace(self, selection=replace(self.selection, select=codes, ignore=()))


def open_session(
    options: Options,
    *,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    deep: bool = False,
    facts_file: Path | None = None,
    announce: Callable[[Target], None] = lambda _: None,
) -> Session:
    """Find the target, read the configuration, load the rules. Raises UsageError.

    `announce` receives the target at once: the first line on the screen must not wait for the rules.
    """
    if facts_file is not None and options != Options():
        raise UsageError(
            "--facts checks what was seen elsewhere: no interpreter, tree, script, model, data or "
            "cluster can be named with it"
        )
    machine = Machine()
    target = discover(options, machine)
    announce(target)
    begun = Collection((interpreter,), {Machine: machine, Target: target})
    if facts_file is None:
        begun.start((Interpreter,))
    config = load(machine.cwd)
    known = registry.load(config.disable_plugins)
    named = (
        ("--select", select),
        ("--ignore", ignore),
        (f"{config.path}: select", config.select),
        (f"{config.path}: ignore", tuple(config.ignore)),
        *(
            (f'{config.path}: per_file_ignores."{pattern}"', tuple(entries))
            for pattern, entries in config.per_file_ignores.items()
        ),
    )
    for option, words in named:
        if unknown := unknown_words(words, known.checks):
            families = ", ".join(dict.fromkeys(check.family for check in known.checks))
            lost = ", ".join(problem.distribution for problem in known.problems.problems)
            raise UsageError(
                f"{option}: unknown rule or family {', '.join(unknown)}; families are {families}; "
                + (f"plugins that could not be used: {lost}; " if lost else "")
                + "run verl-doctor explain --list for all"
            )
    if target.files:
        announce_unused(config, target.files)
    costs = frozenset({"instant"}) | (DEEP if deep else frozenset())
    selection = Selection(select or config.select, ignore, costs, config.ignores_for(target.files))
    if not any(selection.selects(check) for check in known.checks):
        raise UsageError("no rule is left to run: every selected rule is ignored")
    return Session(machine, target, config, known, selection, facts_file, [] if facts_file else [begun])


def version() -> str:
    """Return the version of the installed doctor, or "not installed" when it runs from a bare checkout."""
    with contextlib.suppress(OSError):
        for name in os.listdir(TOOLKIT.parents[1]):  # noqa: PTH208 - next to it, as an installer leaves it
            if match := _INSTALLED.fullmatch(name):
                return match[1]
    import importlib.metadata  # noqa: PLC0415 - slow to import, and only an editable installation needs it

    try:
        return importlib.metadata.version("verl-doctor")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def describe(target: Target, collection: Facts, facts_file: Path | None) -> Mapping[str, Any]:
    """Return what was examined, for the head of every report."""
    interpreter, verl, vllm = collection.get(Interpreter), collection.get(VerlTrees), collection.get(VllmTree)
    fields: dict[str, Any] = {"python": str(target.python), "chosen_by": target.chosen_why}
    if facts_file is not None:
        fields = {"python": "", "chosen_by": f"facts file {facts_file}"}
    fields["passed_over"] = "" if facts_file else target.passed_over
    fields["arguments"] = ["--facts", str(facts_file)] if facts_file else list(target.arguments)
    fields["python_version"] = "" if isinstance(interpreter, Unknown) else interpreter.version
    fields["verl"] = None if isinstance(verl, Unknown) else _tree(verl.imported)
    fields["vllm"] = None if isinstance(vllm, Unknown) else _tree(vllm.tree)
    libraries = collection.get(LibraryTrees)
    trees = () if isinstance(libraries, Unknown) else libraries.trees
    fields["libraries"] = {tree.module: _tree(tree) for tree in trees}
    return fields


def without_verl(collection: Facts) -> str:
    """Return why there is no verl tree to judge; "" where there is one."""
    trees = collection.get(VerlTrees)
    return trees.reason if isinstance(trees, Absent) else ""


def _tree(tree: Tree) -> dict[str, str]:
    return {"folder": tree.folder, "version": tree.version, "found_in": tree.found_in, "place": tree.place}


def all_facts(run: Session, collection: Collection) -> str:
    """Collect every portable fact: the content of a facts file."""
    return factsfile.dump(portable_facts(run, collection), run.registry.collectors, version())


def portable_facts(run: Session, collection: Collection) -> dict[type, Any]:
    """Collect every portable fact. What takes seconds or a GPU is tried only with --deep."""
    collectors = run.registry.collectors
    left_out = beyond(run.registry.checks, collectors, run.selection.costs)
    return {
        part.fact: Unknown("it is tried with --deep alone", kind="not tried")
        if part.fact in left_out
        else collection.get(part.fact)
        for part in collectors
        if not part.local
    }
