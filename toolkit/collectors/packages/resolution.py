"""Determines what the installer would do to make verl's and vLLM's requirements agree.

The result is that of a dry run, which changes nothing, and its lock.

It queries a package index, so only a fix that is being planned uses it, never a rule. It considers wheels
only: an sdist reveals its requirements only by running its own setup code.
"""

from __future__ import annotations

import configparser
import contextlib
import importlib.metadata
import io
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.change import LOCK, PYTHON
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.result_cache import keep, key_of, recall
from verl_doctor.toolkit.collectors.packages.index_inputs import index_inputs
from verl_doctor.toolkit.collectors.packages.install_needs import Broken, InstallNeeds, relative_to
from verl_doctor.toolkit.collectors.packages.install_request import (
    InstallRequest,
    attempts,
    install_request,
    stopping,
)
from verl_doctor.toolkit.collectors.packages.installer_errors import Complaint, understood
from verl_doctor.toolkit.collectors.packages.installer_limit import LONGEST, PLAN, Clock, InstallerLimit
from verl_doctor.toolkit.collectors.packages.requirements import Requirements
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.process.locked_folder import temporary_folder
from verl_doctor.toolkit.system.secret import without_user
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.text import canonical

# Without a network it must fail soon.
_UV_SOON = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
_HOME = re.compile(r"(?<![^\s=])~/")


def as_the_user(machine: Machine, folder: Path) -> dict[str, str]:
    """Give the installer the user's own configuration, and keep it from writing to the home folder.

    The configuration names the index.

    HOME stays the private one that every child gets. `folder` is for files needed only by this query.
    """
    environ = {
        "NO_COLOR": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CACHE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **_UV_SOON,
    }
    if named := machine.environ.get("UV_CONFIG_FILE"):
        environ["UV_CONFIG_FILE"] = str(machine.cwd / named)
    home = Path(machine.home or "/")
    config = machine.cwd / (machine.environ.get("XDG_CONFIG_HOME") or home / ".config")
    environ["XDG_CONFIG_HOME"] = str(config)
    data = machine.cwd / (machine.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    for variable, path in (
        ("NETRC", home / ".netrc"),
        ("UV_CREDENTIALS_DIR", data / "uv" / "credentials"),
    ):
        if not machine.environ.get(variable) and os.path.exists(path):
            environ[variable] = str(path)
    if (pip := _pip_config(machine, home, config, folder)) is not None:
        environ["PIP_CONFIG_FILE"] = pip
    return environ


def _pip_config(machine: Machine, home: Path, config: Path, folder: Path) -> str | None:
    """Write the user's pip configuration to one file, with `~` as the user's home; None if none exists.

    pip reads the file in PIP_CONFIG_FILE instead of the user's two; it always reads those of the system and
    of the environment.
    """
    named = machine.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip reads this as "no configuration at all"
        return named
    files = [machine.cwd / named] if named else []
    files = [file for file in files if os.path.isfile(file)] or [
        file for file in (home / ".pip" / "pip.conf", config / "pip" / "pip.conf") if os.path.isfile(file)
    ]
    if not files:
        return None
    merged = configparser.RawConfigParser()
    try:
        merged.read(files, encoding="utf-8")
        text = io.StringIO()
        merged.write(text)
    except (configparser.Error, ValueError):
        return str(files[-1])  # pip will report its fault
    made = folder / "pip.conf"
    made.touch(mode=0o600)
    made.write_text(_HOME.sub(lambda _: f"{home}/", text.getvalue()), encoding="utf-8")
    return str(made)


_LIMIT_VERSIONS = 15.0
_KEPT = 3600.0  # seconds, after which the index may offer something else
_of_this_run: dict[str, Resolution | Unknown] = {}
_WHEELS_ONLY = "--only-binary=:all:"
# Without a network it must fail soon. Without any retry, pip does not report that no index responded.
_PIP_SOON = ("--retries", "1", "--timeout", "5")
_PIP_DRY = Version("22.2")  # --dry-run, --report
_PIP_OF_OTHERS = Version("22.3")  # --python
_PIP_READS_METADATA = Version("23.3")  # older ones download each wheel for a dry run

# How uv 0.4 to 0.13 report a package that only an sdist would satisfy.
_UV_SDIST = re.compile(
    r"Because (?:only )?(\S+) (?:has|is available and has) no usable wheels"
    r"|Failed to (?:build|download and build) `([^`@ ]+)[^`]*`(?=[\s\S]*Building source distributions)"
    r"|Wheels are required for `([^`]+)`"
)
_PIP_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_UV_CHANGE = re.compile(r"^ ([+-]) ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


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


@dataclass(frozen=True)
class _Installer:
    """The beginning of the command to type, and of the command that performs the dry run."""

    typed: tuple[str, ...]
    command: tuple[str, ...]
    is_uv: bool = False

    def for_lock(self, python: str) -> tuple[str, ...]:
        """Return the command that installs a lock, for any interpreter."""
        beginning = (PYTHON if word == python else word for word in self.command)
        return (*beginning, _WHEELS_ONLY, "--no-deps", "-r", LOCK)


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
    installer = _installer(machine, target, interpreter, packages)
    if isinstance(installer, Unknown):
        return installer
    request = install_request(packages, requirements)
    if source := _fetched_from_a_url(packages, requirements):
        return _not_verified((*installer.typed, *request.keeps, *request.wanted), request, source)
    known = InstallNeeds() if isinstance(needs, Unknown) else needs
    requests = attempts(packages, requirements, known.extras, known.engine, known.ray)
    clock = Clock(PLAN if isinstance(limit, Unknown) else limit.seconds)

    def resolve() -> Resolution | Unknown:
        with temporary_folder() as folder:
            dry_runs = _DryRuns(machine, installer, packages, known, Path(folder), clock)
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
    return replace(found, copy=str(_free_name(Path(found.environment))))


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
    """Dry runs of one installer."""

    machine: Machine
    installer: _Installer
    packages: Packages
    needs: InstallNeeds
    folder: Path
    clock: Clock

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
    packages, prefix = dry_runs.packages, str(Path(python).parent.parent)
    new = dict(found.versions)
    after = {distribution.name: distribution.version for distribution in packages.distributions}
    broken = {distribution.name: distribution for distribution in dry_runs.needs.broken}
    cleared = [
        relative_to(prefix, place) for distribution in broken.values() for place in distribution.locations
    ]
    cleared += [relative_to(prefix, place) for place in dry_runs.needs.left_over]
    after |= {
        distribution.name: distribution.version for distribution in broken.values() if distribution.version
    } | new
    dropped = [
        distribution
        for distribution in broken.values()
        if not distribution.version and _goes(distribution, packages, new)
    ]
    for distribution in dropped:
        after.pop(distribution.name, None)
    again = [
        distribution
        for distribution in broken.values()
        if distribution.version and distribution.name not in new
    ]
    if again:
        offered = dry_runs.is_offered(
            [f"{distribution.name}=={distribution.version}" for distribution in again]
        )
        if isinstance(offered, Unknown) or offered.outcome != "resolved":
            return offered
    return replace(
        found,
        lock=tuple(f"{name}=={version}" for name, version in sorted(after.items()) if _is_version(version)),
        installer=dry_runs.installer.for_lock(python),
        up=tuple(_moved(new, packages, up=True)),
        down=tuple(_moved(new, packages, up=False)),
        added=tuple(f"{name} {version}" for name, version in new.items() if packages.get(name) is None),
        dropped=tuple(f"{distribution.name} ({distribution.why})" for distribution in dropped),
        again=tuple(
            f"{distribution.name} {distribution.version} ({distribution.why})" for distribution in again
        ),
        cleared=tuple(dict.fromkeys(filter(None, cleared))),
        environment=prefix,
        copy=str(_free_name(Path(prefix))),
    )


def _goes(broken: Broken, packages: Packages, new: Mapping[str, str]) -> bool:
    """Return whether a distribution without a version is removed entirely.

    With an editable install only its spare metadata is removed.
    """
    installed = packages.get(broken.name)
    return broken.name not in new and installed is not None and installed.location in broken.locations


def _moved(new: Mapping[str, str], packages: Packages, *, up: bool) -> Iterator[str]:
    """Yield what becomes newer, or older."""
    for name, version in new.items():
        installed = packages.get(name)
        if (
            installed is not None
            and installed.version != version
            and _is_above(version, installed.version) is up
        ):
            yield f"{name} {installed.version} -> {version}"


def _is_above(new: str, old: str) -> bool:
    try:
        return Version(new) > Version(old)
    except InvalidVersion:
        return True


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _free_name(prefix: Path) -> Path:
    """Return an unused name next to an environment."""
    names = (f"{prefix.name}-repaired{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
    return next(path for name in names if not os.path.lexists(path := prefix.with_name(name)))


def _run(dry_runs: _DryRuns, request: InstallRequest, options: tuple[str, ...] = ()) -> Resolution | Unknown:
    machine, installer, packages = dry_runs.machine, dry_runs.installer, dry_runs.packages
    arguments = (*request.keeps, *request.wanted)
    typed = (*installer.typed, *arguments)
    dry = ("--dry-run",) if installer.is_uv else ("--dry-run", "--report", "-", *_PIP_SOON)
    environ = as_the_user(machine, dry_runs.folder)
    try:
        with _without_trace(installer):
            output = machine.run(
                [*installer.command, _WHEELS_ONLY, *arguments, *options, *dry],
                timeout=dry_runs.clock.left(),
                env=environ,
            )
    except OSError as error:
        return Unknown(f"{installer.command[0]} cannot be started: {error.strerror}")
    if output.code == 0:
        changes = _uv_changes(output) if installer.is_uv else _pip_changes(output)
        command = (*installer.typed, _WHEELS_ONLY, *arguments)
        words = tuple(_in_words(changes, packages))
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
        sdist = _sdist_for_uv(text) if installer.is_uv else _sdist_for_pip(machine, installer, found, environ)
        if sdist:
            why = f"{sdist} has no wheel; the installer would build it, which runs its setup code"
            return _not_verified(typed, request, why)
    clash = found.outcome == "unsatisfiable" and not found.not_offered
    reason = f"{found.reason} (only wheels were considered)" if clash else found.reason
    return Resolution(typed, request.keeps, found.outcome, reason=reason, not_offered=found.not_offered)


@contextlib.contextmanager
def _without_trace(installer: _Installer) -> Iterator[None]:
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


def _fetched_from_a_url(packages: Packages, requirements: Requirements) -> str:
    """Return why no query is made: pip always fetches and builds a requirement named by URL."""
    for name in requirements.closure:
        distribution = packages.get(name)
        for text in distribution.requires if distribution is not None else ():
            if "://" in text and _built(text, packages.markers or {}):
                what = text.partition("@")[0].strip()
                return f"{name} requires {what} from a URL; the installer would fetch and build it"
    return ""


def _built(text: str, markers: Mapping[str, str]) -> bool:
    """Return whether this requirement names sources by URL and applies here. True if unknown."""
    try:
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({**markers, "extra": ""})
    except Exception:  # noqa: BLE001 - as in the walk over the requirements
        return True
    return applies and not (requirement.url or "").partition("#")[0].endswith(".whl")


def _sdist_for_uv(output: str) -> str:
    """Return the package that only an sdist would satisfy, as uv prints it."""
    found = _UV_SDIST.search(output)
    return next(filter(None, found.groups())) if found else ""


def _sdist_for_pip(
    machine: Machine, installer: _Installer, found: Complaint, environ: Mapping[str, str]
) -> str:
    """Return the requirement that an sdist meets and no wheel does.

    Pip does not report it; listing versions builds nothing.
    """
    try:
        wanted = Requirement(found.not_offered)
        pip = installer.command[: installer.command.index("install")]
        output = machine.run(
            [*pip, "index", "versions", wanted.name, "--pre", "--no-input", *_PIP_SOON],
            timeout=_LIMIT_VERSIONS,
            env=environ,
        )
    except (InvalidRequirement, ValueError, OSError):
        return ""
    listed = _PIP_VERSIONS.search(output.stdout)
    versions = listed[1].split(", ") if listed and output.code == 0 else []
    return found.not_offered if any(_meets(wanted, version) for version in versions) else ""


def _meets(wanted: Requirement, version: str) -> bool:
    try:
        return wanted.specifier.contains(Version(version.strip()), prereleases=True)
    except InvalidVersion:
        return False


def _installer(
    machine: Machine, target: Target, interpreter: Interpreter, packages: Packages
) -> _Installer | Unknown:
    """Choose uv if uv made the environment or pip is missing, else its pip, and finally verl-doctor's own."""
    uv = shutil.which("uv", path=machine.environ.get("PATH", ""))
    pip = packages.get("pip")
    if uv and (pip is None or _made_by_uv(Path(interpreter.prefix))):
        words: tuple[str, ...] = (uv, "pip", "install", "--python", str(target.python))
        return _Installer(words, words, is_uv=True)
    install_quietly = ("install", "--no-input", "--disable-pip-version-check")
    own = (sys.executable, "-m", "pip", "--python", str(target.python), *install_quietly)
    has_own = _at_least(_own_pip(), _PIP_OF_OTHERS)
    if pip is not None:
        words = (str(target.python), "-m", "pip", *install_quietly)
        is_faster = _at_least(_own_pip(), _PIP_READS_METADATA) and not _at_least(
            pip.version, _PIP_READS_METADATA
        )
        is_needed = has_own and not _at_least(pip.version, _PIP_DRY)
        return _Installer(words, own if is_faster or is_needed else words)
    if has_own:
        return _Installer(own, own)
    return Unknown("neither pip nor uv is available; put uv on the PATH")


def _own_pip() -> str:
    """Return the version of the pip installed with verl-doctor, or ""."""
    try:
        return importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _at_least(version: str, wanted: Version) -> bool:
    try:
        return Version(version) >= wanted
    except InvalidVersion:
        return False


def _made_by_uv(prefix: Path) -> bool:
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"^uv\s*=", text, re.MULTILINE) is not None


def _uv_changes(output: Output) -> dict[str, str]:
    found = _UV_CHANGE.findall(output.stderr + output.stdout)
    return {canonical(name): version for sign, name, version in found if sign == "+"}


def _pip_changes(output: Output) -> dict[str, str]:
    """Parse the report, which is mixed with pip's messages."""
    text = "\n" + output.stdout
    start = text.find("\n{")
    try:
        report, _ = json.JSONDecoder().raw_decode(text, max(start, 0) + 1)
        metadata = [entry["metadata"] for entry in report["install"]]
        return {canonical(entry["name"]): str(entry["version"]) for entry in metadata}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _in_words(changes: Mapping[str, str], packages: Packages) -> Iterator[str]:
    for name, version in sorted(changes.items()):
        installed = packages.get(name)
        if installed is None:
            yield f"{name} {version} (new)"
        elif installed.version == version:
            yield f"{name} {version} (again)"
        else:
            yield f"{name} {installed.version} -> {version}"
