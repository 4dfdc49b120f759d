"""The experiment trackers of verl that need an account: whether they are installed, and whether there is a key for them.

Keys are never read into the fact: only whether a variable is set, and whether a file has a line for the server. Where they look:
wandb/sdk/lib/wbauth (0.31), swanlab/sdk/internal/settings (0.10); verl/utils/tracking.py asks for mode and key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.fact_job_variables import JobVariables
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.fact_packages import Packages
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

_LARGEST = 1_000_000  # characters of a file with credentials
_HOSTS = {"wandb": "api.wandb.ai", "swanlab": "api.swanlab.cn"}
_OFFLINE = re.compile(r"^\s*mode\s*=\s*(offline|dryrun|disabled)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Tracker:
    """`key_from` names the variable or file that has a key, "" when none of `looked_at` has. `mode` is what is set, "" for the default."""

    name: str
    installed: bool
    key_from: str = ""
    mode: str = ""
    looked_at: tuple[str, ...] = ()

    @property
    def mode_variable(self) -> str:
        """The variable that switches it to another mode."""
        return f"{self.name.upper()}_MODE"


@dataclass(frozen=True)
class Trackers:
    """What is known of each. `offline` names a variable which says that there is no network, "" without one."""

    trackers: tuple[Tracker, ...]
    offline: str = ""


@collector()
def trackers(
    machine: Machine, packages: Packages, variables: JobVariables, launch: Launch | Unknown
) -> Trackers:
    """Look for a key where each would find one."""
    there = _Environment(machine, launch)
    said_offline = (
        name
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        if variables.get(name) in ("1", "true", "True", "ON", "YES")
    )
    found = tuple(_tracker(name, there, packages) for name in _HOSTS)
    return Trackers(found, next(said_offline, ""))


class _Environment:
    """The job's variables, those included whose values no fact holds; only harmless values are given out."""

    def __init__(self, machine: Machine, launch: Launch | Unknown) -> None:
        self.machine = machine
        self._settings = () if isinstance(launch, Unknown) else launch.settings

    def has(self, name: str) -> bool:
        """Whether a variable is set to something."""
        given = [one for one in self._settings if one.name == name]
        if given:
            return not given[-1].removed and given[-1].value != ""
        return bool(self.machine.environ.get(name))

    def harmless(self, name: str) -> str:
        """The value of a variable that is no secret."""
        given = [one for one in self._settings if one.name == name]
        return (given[-1].value or "") if given else self.machine.environ.get(name, "")

    def text(self, path: str) -> str:
        """The text of a file, for a question about it."""
        try:
            with self.machine.at(path).open(encoding="utf-8", errors="replace") as file:
                return file.read(_LARGEST)
        except OSError:
            return ""


def _tracker(name: str, there: _Environment, packages: Packages) -> Tracker:
    upper = name.upper()
    host = re.sub(r"^https?://|/.*$", "", there.harmless(f"{upper}_BASE_URL")) or _HOSTS[name]
    variables = (
        (f"{upper}_API_KEY", f"{upper}_IDENTITY_TOKEN_FILE") if name == "wandb" else (f"{upper}_API_KEY",)
    )
    files = tuple(_files(name, there))
    # swanlab's file has one entry, under the name of whatever server it is.
    entry = re.compile(rf"\bmachine\s+{re.escape(host) if name == 'wandb' else ''}")
    by_variable = (variable for variable in variables if there.has(variable))
    by_file = (file for file in files if entry.search(there.text(file)))
    key_from = next(by_variable, "") or next(by_file, "")
    return Tracker(name, packages.get(name) is not None, key_from, _mode(name, there), (variables[0], *files))


def _files(name: str, there: _Environment) -> Iterator[str]:
    """Where each looks for a key, as far as the user has a home."""
    home = there.machine.home
    if name == "wandb":
        named = there.harmless("NETRC")
        yield from (named,) if named else (f"{home}/.netrc", f"{home}/_netrc") if home else ()
    else:
        yield f"{there.machine.cwd}/.swanlab/.netrc"
        own = f"{home}/.swanlab" if home else ""
        if folder := there.harmless("SWANLAB_ROOT") or there.harmless("SWANLAB_SAVE_DIR") or own:
            yield f"{folder}/.netrc"


def _mode(name: str, there: _Environment) -> str:
    """The mode that a variable sets, or for wandb one of the files that `wandb offline` writes."""
    if mode := there.harmless(f"{name.upper()}_MODE"):
        return mode
    if name != "wandb":
        return ""
    if there.harmless("WANDB_DISABLED").lower() in ("1", "true", "yes"):
        return "disabled"
    files = (f"{there.machine.cwd}/wandb/settings", f"{Path(there.machine.home, '.config/wandb/settings')}")
    return next((match[1] for file in files if (match := _OFFLINE.search(there.text(file)))), "")
