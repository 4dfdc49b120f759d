"""Reuses the facts and outcomes of an earlier `check` while nothing that they depend on has changed.

A collector declared `kept=True` observes files and variables. While it runs, everything that this process
accesses in the file system is noted (`system.looks`). The record of a run holds the state of all of that, the
facts, and the outcomes of the rules that need no other facts. The next run uses them where

- this doctor, its dependencies, its Python, the user, the kernel, the whole environment, the folder, the
  target, the options and the configuration are the same (the record's name is a digest of these),
- every accessed file, folder and link is unchanged: where a single one has changed, nothing of the record is
  used,
- and what kept facts need of the other collectors is equal. These change by themselves (Ray, GPUs, the
  interpreter's report), so they are observed again in every run. Where one differs, nothing of the record is
  used.

Unknown and Broken facts are not kept: a slow disk may have caused them. Rules whose outcomes are reused are
not even imported. A record is valid for a day, and not if it is from the future.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.console.masked import masked
from verl_doctor.toolkit.engine import factsfile, kept_index
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Absent, Collector, FactReference
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.system import cache
from verl_doctor.toolkit.system.looks.looks import Looks, counted
from verl_doctor.toolkit.system.looks.states import CannotBeKeptError, what_changed
from verl_doctor.toolkit.system.looks.watching import watched
from verl_doctor.toolkit.target import UsageError

_OLDEST = 86_400.0  # seconds
_LARGEST = 32_000_000  # bytes
_KEPT = 16  # records: environments, launch scripts, terminals
_SINCE_BOOT = ("/proc/cpuinfo",)
"""Variables that change only with a reboot; the record's name identifies the boot."""


@dataclass
class Memory:
    """The record of an earlier run, as far as it is valid in this one, and what this run adds.

    `values` are the facts as JSON texts, by reference; `compared` are those that are observed again in every
    run. `watch` begins to note what is accessed.
    """

    collectors: Mapping[str, Collector]
    watch: Callable[[], object]
    taken: float = 0.0
    values: Mapping[str, str] = field(default_factory=dict)
    compared: Mapping[str, str] = field(default_factory=dict)
    outcomes: Mapping[str, Any] = field(default_factory=dict)
    valid: dict[str, bool] = field(default_factory=dict)
    noted: dict[str, Any] = field(default_factory=dict)
    collection: Collection | None = None

    def compare(self, collection: Collection) -> None:
        """Observe what changes by itself.

        Where it differs, nothing is reused, and everything is noted for a new record.
        """
        self.collection = collection
        if not self.values:
            return
        values, self.values = self.values, {}  # until all are compared
        collection.start(collector.reference for collector in self._changing.values())
        self.valid = {
            key: self._restored(key, self.compared) == collection.get(collector.fact)
            for key, collector in self._changing.items()
        }
        if all(self.valid.values()):
            self.values = values
        else:
            self.outcomes, self.valid = {}, {}
            self.watch()

    def fact(self, reference: FactReference) -> Any:
        """Return the fact, or None where it must be observed."""
        known = reference.key in self.values and reference.key in self.collectors
        return self._restored(reference.key, self.values) if known and self._is_valid(reference.key) else None

    def _restored(self, key: str, texts: Mapping[str, str]) -> Any:
        try:
            return factsfile.restore("", self.collectors[key], json.loads(texts[key]))
        except (UsageError, LookupError, ValueError, TypeError, RecursionError):
            return None

    def looking(self, collector: Collector) -> contextlib.AbstractContextManager[None]:
        """Return a block for a collector to observe its fact: its file accesses count if the fact is kept."""
        return counted(collector.reference.key) if collector.kept else contextlib.nullcontext()

    def outcome(self, check: Check) -> Any:
        """Return the outcome of the rule, as JSON; None where it must be judged."""
        found = self.outcomes.get(check.code)
        return found if found is not None and all(map(self._holds, _needs(check))) else None

    def age(self) -> float:
        """Return how many seconds ago the record was made."""
        return max(0.0, time.time() - self.taken)

    def note(self, check: Check, outcome: Any) -> None:
        """Record the outcome of a rule, where it depends only on comparable facts."""
        if all(self._may_be_kept(key) for key in _needs(check)):
            self.noted[check.code] = outcome

    def _is_valid(self, key: str) -> bool:
        """Return whether a recorded fact is what would be observed now, given that no file has changed."""
        if key not in self.valid:
            collector = self.collectors[key]
            self.valid[key] = False  # for facts that need each other
            known = collector.local or key in self.values
            self.valid[key] = (
                collector.kept and known and all(self._holds(need.reference.key) for need in collector.needs)
            )
        return self.valid[key]

    def _holds(self, key: str) -> bool:
        """Return whether a needed fact holds.

        One without a collector is given, and part of the record's name.
        """
        return self._is_valid(key) if key in self.collectors else True

    @cached_property
    def _changing(self) -> Mapping[str, Collector]:
        """The collectors of what changes by itself and is needed by a kept fact."""
        needed = dict.fromkeys(
            need.reference.key
            for collector in self.collectors.values()
            if collector.kept
            for need in collector.needs
        )
        known = {key: self.collectors[key] for key in needed if key in self.collectors}
        return {key: collector for key, collector in known.items() if not collector.kept}

    def _may_be_kept(self, key: str) -> bool:
        return key not in self.collectors or self.collectors[key].kept or key in self._changing

    def document(self, unkept: Container[str]) -> dict[str, Any]:
        """Return the record of this run, without the file accesses.

        Of the `unkept` facts nothing is recorded.
        """
        assert self.collection is not None  # noqa: S101 - a run has collected
        values: dict[str, str] = {}
        for key, collector in self.collectors.items():
            known = collector.kept and not collector.local and self.collection.has(collector.reference)
            if known and key not in unkept:
                value = self.collection.get(collector.fact)
                if type(value) in {collector.fact, Absent}:
                    values[key] = _text(value)
        compared = {key: _text(self.collection.get(c.fact)) for key, c in self._changing.items()}
        return {"values": values, "compared": compared, "outcomes": self.noted}


def _needs(check: Check) -> Iterator[str]:
    for needs in (check.applies_needs, check.needs, check.paths_needs, check.unjudged_needs):
        yield from (need.reference.key for need in needs)


def _text(value: Any) -> str:
    return json.dumps(factsfile.entry(value))


@contextlib.contextmanager
def remembering(session: Session) -> Iterator[Session]:
    """Yield the session with a look that reuses what is unchanged since an earlier run.

    Record the result of the look for the next run.
    """
    is_made_up = session.machine != Machine(session.machine.environ, session.machine.cwd)
    if session.registry.plugins or is_made_up or not hasattr(os, "O_PATH"):
        # The accesses of plugins' rules are unpredictable, and other systems have other file systems.
        yield session
        return
    began = time.time()
    file = _file(session)
    with contextlib.ExitStack() as stack:
        watching: list[Looks] = []
        ignored = [str(cache.top()), *kept_index.folders(), *_SINCE_BOOT]
        memory = Memory(
            {collector.reference.key: collector for collector in session.registry.collectors},
            lambda: watching.append(stack.enter_context(watched(ignored))),
        )
        if not _recall(memory, file, began):
            memory.watch()
        yield replace(session, memory=memory)
        whole = not session.selection.select and not session.selection.ignore
        if watching and memory.collection is not None and whole:
            _keep(memory, watching[0], file, began)


def _file(session: Session) -> Path:
    """Return the file of the record, named after everything besides files that a fact may depend on."""
    machine = session.machine
    about = (
        kept_index.state(),
        (sys.version, sys.executable, sys.path, sys.flags),
        (os.geteuid(), os.getegid(), sorted(os.getgroups()), machine.home, tuple(os.uname())),
        machine.read("/proc/sys/kernel/random/boot_id"),
        (sorted(machine.environ.items()), str(machine.cwd)),
        (session.target, session.config, session.registry.problems),
    )
    number = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")).hexdigest()
    return cache.top() / "unchanged" / f"{number}.json"


def _recall(memory: Memory, file: Path, now: float) -> bool:
    """Return whether a record exists, and no file that it was made from has changed."""
    kept = cache.read(file, _LARGEST)
    try:
        if kept is None or not 0 <= now - kept["taken"] < _OLDEST or what_changed(kept["looks"]):
            return False
        values, compared, outcomes = (dict(kept[name]) for name in ("values", "compared", "outcomes"))
        memory.taken, memory.values, memory.compared, memory.outcomes = (
            kept["taken"],
            values,
            compared,
            outcomes,
        )
    except (LookupError, TypeError, ValueError, AttributeError):  # the file was edited
        return False
    return True


def _keep(memory: Memory, seen: Looks, file: Path, began: float) -> None:
    for module in list(sys.modules.values()):  # code that was read as bytecode
        if isinstance(source := getattr(module, "__file__", None), str):
            seen.add(source, "followed")
    try:
        looked = seen.record(began)
    except CannotBeKeptError:
        return
    document = memory.document(seen.unkept)
    if (
        masked(memory.noted) == memory.noted
    ):  # what resembles a secret is never written; facts hold none of it
        cache.write(file, {"taken": began, "looks": looked, **document})
    cache.keep_youngest(file.parent, _KEPT)
