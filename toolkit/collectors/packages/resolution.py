"""Determines what the installer would do to make verl's and vLLM's requirements agree.

The result is that of a dry run, which changes nothing, and its lock.

It queries a package index, so only a fix that is being planned uses it, never a rule. It considers wheels
only: an sdist reveals its requirements only by running its own setup code.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.result_cache import keep, key_of, recall
from verl_doctor.toolkit.collectors.packages.environment_lock import environment_lock, free_name
from verl_doctor.toolkit.collectors.packages.index_inputs import index_inputs
from verl_doctor.toolkit.collectors.packages.install_needs import InstallNeeds
from verl_doctor.toolkit.collectors.packages.install_request import (
    InstallRequest,
    attempts,
    install_request,
    needless,
    stopping,
)
from verl_doctor.toolkit.collectors.packages.installer import PIP_SOON, WHEELS_ONLY, Installer, installer_of
from verl_doctor.toolkit.collectors.packages.installer_errors import understood
from verl_doctor.toolkit.collectors.packages.installer_limit import LONGEST, PLAN, Clock, InstallerLimit
from verl_doctor.toolkit.collectors.packages.installer_settings import as_the_user
from verl_doctor.toolkit.collectors.packages.planned_changes import changes_in, in_words
from verl_doctor.toolkit.collectors.packages.requirements import Requirements
from verl_doctor.toolkit.collectors.packages.source_builds import fetched_from_a_url, only_an_sdist
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.process.locked_folder import temporary_folder
from verl_doctor.toolkit.system.secret import without_user
from verl_doctor.toolkit.target import Target

_KEPT = 3600.0  # seconds, after which the index may offer something else
_of_this_run: dict[str, Resolution | Unknown] = {}


@dataclass(frozen=True)
class Resolution:
    """An installer command and its dry run's result, which the command reproduces: it takes wheels only.

    `keeps` are the pins of what stays as it is. `changes` are what would be installed or replaced, as text.
    `reason` is the resolver's error, or why there was no result. `not_offered` is the requirement that no
    configured index meets.

    If it resolved, `lock` pins all packages of the environment, `installer` is the command that installs such
    a lock, with placeholders for the interpreter and the lock file, `left_out` is the requirement that was
    dropped to resolve only what stops the job, `versions` are the names and versions that would be installed,
    `up`, `down`, `added`, `dropped` and `again` are the changes by kind, and `cleared` the metadata folders
    that must be removed first, relative to the folder `environment`. `copy` is an unused path next to it.
    `out_of_time` is the limit in seconds that the dry runs exceeded.
    """

    command: tuple[str, ...]
    keeps: tuple[str, ...]
    outcome: Literal["resolved", "unsatisfiable", "unanswered"]
    changes: tuple[str, ...] = ()
    reason: str = ""
    not_offered: str = ""
    left_out: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    lock: tuple[str, ...] = ()
    installer: tuple[str, ...] = ()
    up: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    environment: str = ""
    copy: str = ""
    out_of_time: float = 0.0


@collector(timeout=LONGEST + 20, local=True)
def resolution(
    machine: Machine,
    target: Target,
    interpreter: Interpreter,
    packages: Packages,
    requirements: Requirements,
    needs: InstallNeeds | Unknown,
    limit: InstallerLimit | Unknown,
) -> Resolution | Unknown:
    """Query the environment's own installer for versions that agree.

    If possible, they agree with torch, vLLM and verl as they are.

    If not, torch and then the engine may change as well. The result is kept while the inputs stay the same:
    everything for this run, and for an hour what resolved.
    """
    installer = installer_of(machine, target, interpreter, packages)
    if isinstance(installer, Unknown):
        return installer
    request = install_request(packages, requirements)
    if source := fetched_from_a_url(packages, requirements):
        return _not_verified((*installer.typed, *request.keeps, *request.wanted), request, source)
    known = InstallNeeds() if isinstance(needs, Unknown) else needs
    requests = attempts(packages, requirements, known.extras, known.engine, known.ray)
    clock = Clock(PLAN if isinstance(limit, Unknown) else limit.seconds)

    def resolve() -> Resolution | Unknown:
        with temporary_folder() as folder:
            unneeded = needless(requirements)
            dry_runs = _DryRuns(machine, installer, packages, known, Path(folder), clock, unneeded)
            return _resolved(dry_runs, requests, stopping(requirements), str(target.python))

    if machine.runner is not None:
        return resolve()
    inputs = index_inputs(machine, Path(interpreter.prefix))
    key = key_of((installer, packages, requests, known, inputs), ())
    found = _of_this_run.get(key) or recall(Resolution, key, _KEPT)
    if found is None:
        found = resolve()
        if not isinstance(found, Unknown) and found.outcome == "resolved":
            keep(found, key)
    _of_this_run[key] = found
    if isinstance(found, Unknown) or found.outcome != "resolved":
        return found
    return replace(found, copy=str(free_name(Path(found.environment))))


def _resolved(
    dry_runs: _DryRuns, requests: Sequence[InstallRequest], wanted: tuple[str, ...], python: str
) -> Resolution | Unknown:
    """Return the first request that resolves, with its lock; if none does, the result of the first."""
    first = found = dry_runs.run(requests[0])
    for other in requests[1:]:
        if isinstance(found, Unknown) or found.outcome != "unsatisfiable":
            break
        found = dry_runs.run(other)
    if isinstance(found, Unknown) or found.outcome != "resolved":
        found = dry_runs.least(wanted, first)
    if isinstance(found, Unknown) or found.outcome != "resolved":
        return first
    return _with_lock(found, dry_runs, python)


@dataclass(frozen=True)
class _DryRuns:
    """Dry runs of one installer.

    What is `needless` and missing stays so, unless torch changes: another torch may require it.
    """

    machine: Machine
    installer: Installer
    packages: Packages
    needs: InstallNeeds
    folder: Path
    clock: Clock
    needless: frozenset[str] = frozenset()

    def changes(self, output: Output) -> dict[str, str]:
        """Return the versions that would be installed, by name."""
        found = changes_in(output, is_uv=self.installer.is_uv)
        if "torch" in found:
            return found
        return {name: version for name, version in found.items() if name not in self.needless}

    def run(self, request: InstallRequest) -> Resolution | Unknown:
        """Return the result of a dry run of these requests."""
        limits = _cuda_limits(self.needs.cuda)
        constraints: tuple[str, ...] = ()
        if limits:
            file = self.folder / "constraints.txt"
            file.write_text("\n".join(limits), encoding="utf-8")
            constraints = ("-c", str(file))
        return _run(self, request, constraints)

    def least(self, wanted: tuple[str, ...], whole: Resolution | Unknown) -> Resolution | Unknown:
        """Resolve only what stops the job if the index lacks something else.

        A cluster's own index is seldom complete.
        """
        if isinstance(whole, Unknown) or not whole.not_offered or not wanted:
            return whole
        options = ("--no-deps",)
        found = _run(self, InstallRequest((), wanted), options)
        if isinstance(found, Unknown) or not found.changes:
            return whole
        return replace(found, left_out=whole.not_offered)

    def is_offered(self, pins: Sequence[str]) -> Resolution | Unknown:
        """Return whether the index has exactly these releases, which are installed already in some form."""
        anew = "--reinstall" if self.installer.is_uv else "--force-reinstall"
        return _run(self, InstallRequest((), tuple(pins)), ("--no-deps", anew))


def _cuda_limits(newest: str) -> tuple[str, ...]:
    """Return constraints that exclude a torch built for a CUDA that this driver does not support.

    They work because its wheels require the runtime.
    """
    if not newest.isdigit():
        return ()
    later = range(int(newest) + 1, int(newest) + 4)
    return (
        f"nvidia-cuda-runtime<{int(newest) + 1}",
        *(f"nvidia-cuda-runtime-cu{major}<0" for major in later),
    )


def _with_lock(found: Resolution, dry_runs: _DryRuns, python: str) -> Resolution | Unknown:
    """Add the lock of all packages to the resolution, and which of them must be reinstalled."""
    prefix = str(Path(python).parent.parent)
    after = environment_lock(dict(found.versions), dry_runs.packages, dry_runs.needs, prefix)
    if after.reinstalled:
        offered = dry_runs.is_offered(after.reinstalled)
        if isinstance(offered, Unknown) or offered.outcome != "resolved":
            return offered
    return replace(
        found,
        lock=after.lock,
        installer=dry_runs.installer.for_lock(python),
        up=after.up,
        down=after.down,
        added=after.added,
        dropped=after.dropped,
        again=after.again,
        cleared=after.cleared,
        environment=prefix,
        copy=str(free_name(Path(prefix))),
    )


def _run(dry_runs: _DryRuns, request: InstallRequest, options: tuple[str, ...] = ()) -> Resolution | Unknown:
    machine, installer, packages = dry_runs.machine, dry_runs.installer, dry_runs.packages
    arguments = (*request.keeps, *request.wanted)
    typed = (*installer.typed, *arguments)
    dry = ("--dry-run",) if installer.is_uv else ("--dry-run", "--report", "-", *PIP_SOON)
    environ = as_the_user(machine, dry_runs.folder)
    try:
        with _without_trace(installer):
            output = machine.run(
                [*installer.command, WHEELS_ONLY, *arguments, *options, *dry],
                timeout=dry_runs.clock.left(),
                env=environ,
            )
    except OSError as error:
        return Unknown(f"{installer.command[0]} cannot be started: {error.strerror}")
    if output.code == 0:
        changes = dry_runs.changes(output)
        command = (*installer.typed, WHEELS_ONLY, *arguments)
        words = tuple(in_words(changes, packages))
        return Resolution(command, request.keeps, "resolved", words, versions=tuple(sorted(changes.items())))
    if output.code is None:
        name, seconds = "uv" if installer.is_uv else "pip", dry_runs.clock.seconds
        found_late = _not_verified(
            typed, request, f"{name} had not found versions that agree after {seconds:.0f} s"
        )
        return replace(found_late, out_of_time=seconds)
    text = without_user(f"{output.stderr}\n{output.stdout}")
    found = understood(text)
    if found.outcome == "unsatisfiable":
        sdist = only_an_sdist(machine, installer, found, text, environ)
        if sdist:
            why = f"{sdist} has no wheel; the installer would build it, which runs its setup code"
            return _not_verified(typed, request, why)
    clash = found.outcome == "unsatisfiable" and not found.not_offered
    reason = f"{found.reason} (only wheels were considered)" if clash else found.reason
    return Resolution(typed, request.keeps, found.outcome, reason=reason, not_offered=found.not_offered)


@contextlib.contextmanager
def _without_trace(installer: Installer) -> Iterator[None]:
    """Remove the empty lock file that a dry run of uv leaves in an environment that had none."""
    lock = Path(installer.command[-1]).parent.parent / ".lock"
    was_there = not installer.is_uv or os.path.lexists(lock)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if not was_there and lock.stat().st_size == 0:
                lock.unlink()


def _not_verified(command: tuple[str, ...], request: InstallRequest, reason: str) -> Resolution:
    return Resolution(command, request.keeps, "unanswered", reason=reason)
