"""The job's variables while repairs are tried in turn."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.change import Change, SetVariable
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.variables.variable_readers import readers_of
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair import envfile, envfile_ray
from verl_doctor.toolkit.repair.envfile import Entry, may_be_written, sourced, united, without
from verl_doctor.toolkit.repair.envfiles import EnvFiles
from verl_doctor.toolkit.repair.plan import Plan, diff_of
from verl_doctor.toolkit.result import EnvironmentFiles, Report
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.system.file_systems import why_not_writable
from verl_doctor.toolkit.target import Target, UsageError

_OVERRIDE = "+ray_kwargs.ray_init.runtime_env.env_vars.NAME='\"VALUE\"'"
_TAKES_RUNTIME_ENV = re.compile(r"ray_init\w*\.get\(\s*[\"']runtime_env[\"']")
_JUDGED = frozenset({"pass", "warn", "fail"})


@dataclass(frozen=True)
class JobEnvironment:
    """The intended content of the files of `--output-env DIR`.

    `written` is what an earlier run wrote there, `sign` identifies an environment that sourced it, and
    `found` is this run's environment without it. Each examination has `held`, set by repairs of this run, and
    `kept`, set by an earlier run for rules that were not judged now. `waiting` are an earlier run's variables
    whose repair is still to be tried, or is not requested now. They stay in the files, except for those that
    are `needless`.
    """

    files: EnvFiles
    sign: str
    written: tuple[Entry, ...]
    found: Mapping[str, str]
    held: tuple[Entry, ...] = ()
    kept: tuple[Entry, ...] = ()
    waiting: tuple[Entry, ...] = ()
    needless: frozenset[str] = frozenset()

    def as_found(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment without what the files set.

        Only that shows whether a variable is necessary.
        """
        return without(environ, self.written, self.sign)

    def as_started(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return a process's environment after a restart with the shell file sourced."""
        return sourced(self.as_found(environ), (*self.kept, *self.held))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What belongs in the files now, by name."""
        every = {entry.name: entry for entry in (*self.waiting, *self.kept, *self.held)}
        return tuple(replace(every[name], instead_of=self._had(every[name])) for name in sorted(every))

    def changes(self) -> list[Change]:
        """Return the changes that make the files contain `entries`.

        Raises Refused if a file there is not ours.
        """
        return self.files.changes(self.entries, self.found)

    def as_planned(self, seen: Collection, *, applied: bool) -> EnvironmentFiles:
        """Return the files for the report: what they contain, or would contain, and how to use them."""
        to_write = not applied and (self.entries or self.written)
        diff = "".join(map(diff_of, self.changes())) if to_write else ""
        return EnvironmentFiles(
            shell=str(self.files.shell),
            runtime_env=str(self.files.ray),
            variables=tuple(self._as_data(entry) for entry in self.entries),
            diff=diff,
            override=_override(seen.get(VerlTrees)),
        )

    def judged(self, report: Report) -> JobEnvironment:
        """Sort an earlier run's entries by a report on `found`.

        Entries that no rule needs any more are needless.
        """
        judged = {result.code for result in report.results if result.status in _JUDGED}
        found = {(result.code, finding.fix) for result, finding in report.findings()}
        kept = [
            entry for entry in self.waiting if not judged.issuperset(reason.code for reason in entry.reasons)
        ]
        waiting = tuple(entry for entry in self.waiting if entry not in kept)
        not_requested = (
            entry.name
            for entry in waiting
            if found.isdisjoint((reason.code, reason.fix) for reason in entry.reasons)
        )
        return replace(self, kept=tuple(kept), waiting=waiting).giving_up(not_requested)

    def holding(self, entries: Iterable[Entry]) -> JobEnvironment:
        """Return the same with these entries. Raises Refused, with both reasons, if one of them conflicts."""
        job = self
        for entry in entries:
            held, kept = ({old.name: old for old in olds} for olds in (job.held, job.kept))
            older = kept.pop(entry.name, None)
            if older is not None and not _same_origin(older, entry):
                entry = united(older, entry)  # noqa: PLW2901
            if entry.name in held:
                entry = united(held[entry.name], entry)  # noqa: PLW2901
            held[entry.name] = entry
            waiting = tuple(old for old in job.waiting if old.name != entry.name)
            job = replace(job, held=tuple(held.values()), kept=tuple(kept.values()), waiting=waiting)
        return job

    def giving_up(self, names: Iterable[str]) -> JobEnvironment:
        """Return the same with these entries of an earlier run marked needless.

        No rule needs them, or they do not help.
        """
        return replace(self, needless=self.needless.union(names))

    def settled(self) -> JobEnvironment:
        """Return the same without needless entries."""
        return replace(
            self, waiting=tuple(entry for entry in self.waiting if entry.name not in self.needless)
        )

    def _as_data(self, entry: Entry) -> dict[str, Any]:
        """Return one variable for JSON.

        `ray` is its value in the `runtime_env`, None if that cannot contain it.
        """
        held = not envfile_ray.left_out(entry)
        return {
            "name": entry.name,
            "value": entry.value,
            "prepend": entry.prepend,
            "node_only": entry.node_only,
            "ray": envfile_ray.value_for_ray(entry, self.found) if held else None,
            "reasons": [str(reason) for reason in entry.reasons],
        }

    def _had(self, entry: Entry) -> str | None:
        """Return the environment's former value, if a file may contain it.

        Return the one recorded by an earlier run if the environment has none now.
        """
        value = self.found.get(entry.name)
        if value is None or entry.prepend:
            return entry.instead_of
        return value if may_be_written(entry.name, value) else None


def begin_from(machine: Machine, folder: Path | None) -> JobEnvironment | None:
    """Begin with what an earlier run wrote to the folder of `--output-env`; None without that option.

    Raises UsageError if a file there is not ours.
    """
    if folder is None:
        return None
    files = EnvFiles(Path(os.path.abspath(machine.cwd / folder)))
    if why := why_not_writable(machine, str(files.folder)):
        raise UsageError(f"--output-env {folder}: {why}; choose another folder, which need not exist")
    try:
        earlier, sign = files.entries(), files.sign
    except Refused as error:
        raise UsageError(str(error)) from None
    found = without(machine.environ, earlier, sign)
    return JobEnvironment(files, sign, earlier, found, waiting=earlier)


def with_variables(
    job: JobEnvironment, plan: Plan, others: Iterable[Plan], seen: Collection
) -> tuple[Plan, JobEnvironment]:
    """Return a plan without the variables no package would read, and the job's environment with the rest.

    Raises Refused if no file may contain one of them, if one conflicts with `others`, or if nothing is left
    to do.
    """
    entries: dict[str, Entry] = {}
    for variable in plan.variables:
        new = envfile.entry(variable, plan.code, plan.fix.id)
        entries[variable.name] = united(entries[variable.name], new) if variable.name in entries else new
    for other in others:
        for variable in other.variables:
            if variable.name in entries:
                united(entries[variable.name], envfile.entry(variable, other.code, other.fix.id))
    dead = _unread([name for name, entry in entries.items() if entry.value is not None], seen)
    left_out = "; ".join(f"{name} is left out: {why}" for name, why in dead.items())
    kept = [entry for name, entry in entries.items() if name not in dead]
    if not kept and not plan.on_disk:
        raise Refused(left_out)
    changes = tuple(
        change for change in plan.changes if not (isinstance(change, SetVariable) and change.name in dead)
    )
    return replace(plan, changes=changes, left_out=left_out), job.holding(kept)


def _unread(names: Sequence[str], seen: Collection) -> dict[str, str]:
    """Return the variables that no installed package reads, each with a reason."""
    target = seen.get(Target)
    if isinstance(target, Unknown):
        return {}
    found = readers_of(names, target, seen.get(Interpreter), seen.get(VerlTrees), seen.get(VllmTree))
    dead = () if isinstance(found, Unknown) else found.dead()
    return {reading.name: f"the installed {reading.owner} does not read it" for reading in dead}


def _override(verl: VerlTrees | Unknown) -> str:
    """Return how verl's command line passes a variable to the workers, "" if it cannot (before 0.6.0)."""
    if isinstance(verl, Unknown):
        return ""
    try:
        source = Path(verl.imported.folder, "trainer", "main_ppo.py").read_text("utf-8", "replace")
    except OSError:
        return ""
    return _OVERRIDE if _TAKES_RUNTIME_ENV.search(source) else ""


def _same_origin(old: Entry, new: Entry) -> bool:
    origins = {(reason.code, reason.fix) for reason in new.reasons}
    return all((reason.code, reason.fix) in origins for reason in old.reasons)
