"""What the installer would do to make verl's and vLLM's requirements agree: a dry run, which changes nothing.

It asks a package index, so only a fix that is being planned needs it. No rule does.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_packages import VLLM_NAMES, Packages, canonical
from verl_doctor.toolkit.fact_requirements import REALLY_REQUIRED, Requirements
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Answer, Machine
from verl_doctor.toolkit.target import Target

_LIMIT = 60.0
_LONGEST_REASON = 400
# How pip and uv say that no index could be reached, or that they are too old for a dry run.
_NO_ANSWER = re.compile(
    r"Failed to (?:establish a new connection|fetch)|error sending request|dns error|name resolution"
    r"|Name or service not known|Connection (?:refused|reset|timed out)|timed out|Network is unreachable|No route to host"
    r"|ProxyError|SSLError|no such option|unexpected argument",
    re.IGNORECASE,
)
_UV_CHANGE = re.compile(r"^ ([+-]) ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
# uv 0.4 to 0.10 draw an arrow, later ones write "cause:".
_UV_REASON = re.compile(r"(?:╰─▶|cause:) (.*)", re.DOTALL)


@dataclass(frozen=True)
class Resolution:
    """One installer command and what its dry run said.

    `keeps` are the pins of what stays as it is. `changes` are what would be installed or replaced, in words. `reason` is
    the resolver's complaint, or why nobody answered.
    """

    command: tuple[str, ...]
    keeps: tuple[str, ...]
    outcome: Literal["resolved", "unsatisfiable", "unanswered"]
    changes: tuple[str, ...] = ()
    reason: str = ""


@collector(timeout=90, local=True)
def resolution(
    machine: Machine, target: Target, interpreter: Interpreter, packages: Packages, requirements: Requirements
) -> Resolution | Unknown:
    """Ask the environment's own installer for versions that agree with torch, vLLM and verl as they are."""
    installer = _installer(machine, target, interpreter, packages)
    if isinstance(installer, Unknown):
        return installer
    keeps = tuple(_keeps(packages, requirements))
    command = (*installer, *keeps, *_wishes(requirements, keeps))
    is_uv = installer[0] != str(target.python)
    dry = ("--dry-run",) if is_uv else ("--dry-run", "--quiet", "--report", "-")
    try:
        answer = machine.run([*command, *dry], timeout=_LIMIT, env=_as_the_user(machine))
    except OSError as error:
        return Unknown(f"{installer[0]} cannot be started: {error.strerror}")
    if answer.code == 0:
        changes = _uv_changes(answer) if is_uv else _pip_changes(answer)
        return Resolution(command, keeps, "resolved", tuple(_in_words(changes, packages)))
    if answer.code is None:
        return Resolution(command, keeps, "unanswered", reason=f"no answer within {_LIMIT:.0f} s")
    said = answer.stderr + answer.stdout
    if unreachable := _NO_ANSWER.search(said):
        return Resolution(
            command, keeps, "unanswered", reason=_one_line(_line_around(said, unreachable.start()))
        )
    return Resolution(command, keeps, "unsatisfiable", reason=_complaint(answer))


def _installer(
    machine: Machine, target: Target, interpreter: Interpreter, packages: Packages
) -> tuple[str, ...] | Unknown:
    """The beginning of the command: uv where uv made the environment or pip is missing, otherwise its pip."""
    uv = shutil.which("uv", path=machine.environ.get("PATH", ""))
    has_pip = packages.get("pip") is not None
    if uv and (not has_pip or _made_by_uv(Path(interpreter.prefix))):
        return (uv, "pip", "install", "--python", str(target.python))
    if has_pip:
        pip = (str(target.python), "-m", "pip", "install")
        return (*pip, "--no-input", "--disable-pip-version-check")
    return Unknown("neither pip nor uv is there to install anything: put uv on the PATH")


def _made_by_uv(prefix: Path) -> bool:
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"^uv\s*=", text, re.MULTILINE) is not None


def _keeps(packages: Packages, requirements: Requirements) -> Iterator[str]:
    """Pin verl and vLLM as installed, and torch unless it is what one of the others cannot live with."""
    contradicted = {unmet.name for unmet in requirements.unmet if not unmet.extra}
    for name in ("verl", *VLLM_NAMES, "torch"):
        distribution = packages.get(name)
        if distribution is not None and not (name == "torch" and name in contradicted):
            yield f"{name}=={distribution.version}"


def _wishes(requirements: Requirements, keeps: tuple[str, ...]) -> Iterator[str]:
    """Name what has a wrong version, or is missing although no metadata asks for it; the installer finds the rest.

    What a package wants that will itself be changed does not count: its successor may want something else.
    """
    kept = {pin.partition("==")[0] for pin in keeps}
    named = [
        unmet
        for unmet in requirements.unmet
        if not unmet.extra and unmet.name not in kept and (unmet.there or unmet.name in REALLY_REQUIRED)
    ]
    changing = {unmet.name for unmet in named}
    specifiers: dict[str, list[str]] = {}
    for unmet in named:
        if unmet.by not in changing:
            specifiers.setdefault(unmet.name, []).append(unmet.wanted)
    for name, wanted in sorted(specifiers.items()):
        yield name + ",".join(dict.fromkeys(filter(None, wanted)))


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
    }


def _uv_changes(answer: Answer) -> dict[str, str]:
    found = _UV_CHANGE.findall(answer.stderr + answer.stdout)
    return {canonical(name): version for sign, name, version in found if sign == "+"}


def _pip_changes(answer: Answer) -> dict[str, str]:
    try:
        metadata = [entry["metadata"] for entry in json.loads(answer.stdout)["install"]]
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


def _complaint(answer: Answer) -> str:
    said = answer.stderr.strip() or answer.stdout.strip()
    if match := _UV_REASON.search(said):
        return _one_line(match[1].replace("│", " "))
    errors = [line for line in said.splitlines() if line.lower().startswith("error:")]
    return _one_line(errors[0][len("error:") :] if errors else answer.said)


def _line_around(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0]


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= _LONGEST_REASON else joined[: _LONGEST_REASON - 3] + "..."
