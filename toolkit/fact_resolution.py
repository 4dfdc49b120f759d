"""What the installer would do to make verl's and vLLM's requirements agree: a dry run, which changes nothing.

It asks a package index, so only a fix that is being planned needs it. No rule does.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.complaint import understood
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_packages import VLLM_NAMES, Packages, canonical
from verl_doctor.toolkit.fact_requirements import Requirements, Unmet
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Answer, Machine
from verl_doctor.toolkit.target import Target

# What a job needs is PKG101's judgement. It stands here because the dry run is composed here and the engine imports no rule.
ENGINES = frozenset({"vllm", "sglang"})
# Named by extras only, yet verl's trainer imports it unguarded: a worker dies of that after 28 s (verl 0.9.1, 2026-11).
_UNDECLARED = frozenset({"transferqueue"})
_LIMIT = 60.0
# Without a network the answer must come soon. With no retry at all pip keeps to itself that no index answered.
_PIP_SOON = ("--retries", "1", "--timeout", "5")
_UV_SOON = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
_PIP_DRY = Version("22.2")  # --dry-run, --report
_PIP_OF_OTHERS = Version("22.3")  # --python

_UV_CHANGE = re.compile(r"^ ([+-]) ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Resolution:
    """One installer command and what its dry run said.

    `keeps` are the pins of what stays as it is. `changes` are what would be installed or replaced, in words. `reason` is
    the resolver's complaint, or why nobody answered. `not_offered` is the requirement that no configured index meets.
    """

    command: tuple[str, ...]
    keeps: tuple[str, ...]
    outcome: Literal["resolved", "unsatisfiable", "unanswered"]
    changes: tuple[str, ...] = ()
    reason: str = ""
    not_offered: str = ""


@dataclass(frozen=True)
class Wishes:
    """What one command asks for: the pins of what stays, and what must be changed or added."""

    keeps: tuple[str, ...]
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class _Installer:
    """The beginning of the command to type, and of the one that answers the dry run."""

    typed: tuple[str, ...]
    asked: tuple[str, ...]
    is_uv: bool = False


@collector(timeout=90, local=True)
def resolution(
    machine: Machine, target: Target, interpreter: Interpreter, packages: Packages, requirements: Requirements
) -> Resolution | Unknown:
    """Ask the environment's own installer for versions that agree with torch, vLLM and verl as they are."""
    installer = _installer(machine, target, interpreter, packages)
    if isinstance(installer, Unknown):
        return installer
    wishes = wishes_of(packages, requirements)
    arguments = (*wishes.keeps, *wishes.wanted)
    command = (*installer.typed, *arguments)
    dry = ("--dry-run",) if installer.is_uv else ("--dry-run", "--report", "-", *_PIP_SOON)
    try:
        answer = machine.run([*installer.asked, *arguments, *dry], timeout=_LIMIT, env=_as_the_user(machine))
    except OSError as error:
        return Unknown(f"{installer.asked[0]} cannot be started: {error.strerror}")
    if answer.code == 0:
        changes = _uv_changes(answer) if installer.is_uv else _pip_changes(answer)
        return Resolution(command, wishes.keeps, "resolved", tuple(_in_words(changes, packages)))
    if answer.code is None:
        reason = f"no index answered within {_LIMIT:.0f} s"
        return Resolution(command, wishes.keeps, "unanswered", reason=reason)
    found = understood(f"{answer.stderr}\n{answer.stdout}")
    return Resolution(
        command, wishes.keeps, found.outcome, reason=found.reason, not_offered=found.not_offered
    )


def required(unmet: Unmet) -> bool:
    """Whether a job needs this: a plain requirement, or one that only an engine's extra names although verl imports it."""
    return not unmet.extra or (unmet.extra in ENGINES and unmet.name in _UNDECLARED)


def wishes_of(packages: Packages, requirements: Requirements) -> Wishes:
    """Compose what to ask for. Pure: nobody is asked here."""
    keeps = tuple(_keeps(packages, requirements))
    return Wishes(keeps, tuple(_wanted(requirements, keeps)))


def _keeps(packages: Packages, requirements: Requirements) -> Iterator[str]:
    """Pin verl and vLLM as installed, and torch unless it is what one of the others cannot live with."""
    contradicted = {unmet.name for unmet in requirements.unmet if not unmet.extra}
    for name in ("verl", *VLLM_NAMES, "torch"):
        distribution = packages.get(name)
        if distribution is not None and not (name == "torch" and name in contradicted):
            yield f"{name}=={distribution.version}"


def _wanted(requirements: Requirements, keeps: tuple[str, ...]) -> Iterator[str]:
    """Name what has a wrong version, or is missing although no metadata asks for it; the installer finds the rest.

    What a package wants that will itself be changed does not count: its successor may want something else.
    """
    kept = {pin.partition("==")[0] for pin in keeps}
    named = [
        unmet
        for unmet in requirements.unmet
        if required(unmet) and unmet.name not in kept and (unmet.there or unmet.extra)
    ]
    changing = {unmet.name for unmet in named}
    specifiers: dict[str, list[str]] = {}
    for unmet in named:
        if unmet.by not in changing:
            specifiers.setdefault(unmet.name, []).append(unmet.wanted)
    for name, wanted in sorted(specifiers.items()):
        yield name + ",".join(dict.fromkeys(filter(None, wanted)))


def _installer(
    machine: Machine, target: Target, interpreter: Interpreter, packages: Packages
) -> _Installer | Unknown:
    """Take uv where uv made the environment or pip is missing, otherwise its pip, and at last the doctor's own."""
    uv = shutil.which("uv", path=machine.environ.get("PATH", ""))
    pip = packages.get("pip")
    if uv and (pip is None or _made_by_uv(Path(interpreter.prefix))):
        words: tuple[str, ...] = (uv, "pip", "install", "--python", str(target.python))
        return _Installer(words, words, is_uv=True)
    quietly = ("install", "--no-input", "--disable-pip-version-check")
    own = (sys.executable, "-m", "pip", "--python", str(target.python), *quietly)
    has_own = _at_least(_own_pip(), _PIP_OF_OTHERS)
    if pip is not None:
        words = (str(target.python), "-m", "pip", *quietly)
        return _Installer(words, own if has_own and not _at_least(pip.version, _PIP_DRY) else words)
    if has_own:
        return _Installer(own, own)
    return Unknown("neither pip nor uv is there to install anything: put uv on the PATH")


def _own_pip() -> str:
    """The version of the pip that lies beside the doctor, or nothing."""
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


def _as_the_user(machine: Machine) -> dict[str, str]:
    """Let the installer see the user's own configuration, which names the index, and keep it from writing a cache."""
    home = machine.environ.get("HOME", "")
    config = machine.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return {
        "HOME": home,
        "XDG_CONFIG_HOME": config,
        "NO_COLOR": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CACHE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **_UV_SOON,
    }


def _uv_changes(answer: Answer) -> dict[str, str]:
    found = _UV_CHANGE.findall(answer.stderr + answer.stdout)
    return {canonical(name): version for sign, name, version in found if sign == "+"}


def _pip_changes(answer: Answer) -> dict[str, str]:
    """Read the report, which stands between the lines that pip says to a person."""
    said = "\n" + answer.stdout
    start = said.find("\n{")
    try:
        report, _ = json.JSONDecoder().raw_decode(said, max(start, 0) + 1)
        metadata = [entry["metadata"] for entry in report["install"]]
        return {canonical(entry["name"]): str(entry["version"]) for entry in metadata}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _in_words(changes: Mapping[str, str], packages: Packages) -> Iterator[str]:
    for name, version in sorted(changes.items()):
        there = packages.get(name)
        if there is None:
            yield f"{name} {version} (new)"
        elif there.version == version:
            yield f"{name} {version} (again)"
        else:
            yield f"{name} {there.version} -> {version}"
