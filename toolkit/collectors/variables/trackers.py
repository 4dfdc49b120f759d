"""The experiment trackers of verl that need an account: whether they are installed, and a key exists.

Keys are never stored in the fact: only whether a variable is set, and whether a file has a line for the
server. Where they look: wandb/sdk/lib/wbauth (0.31), swanlab/sdk/internal/settings (0.10);
verl/utils/tracking.py reads mode and key.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.launch import TO_FILL_IN, Launch, load_text
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import read
from verl_doctor.toolkit.target import Target

_LARGEST = 1_000_000  # characters of a file with credentials
_HOSTS = {"wandb": "api.wandb.ai", "swanlab": "api.swanlab.cn"}
# wandb's error in a process without a terminal, and where it is raised (0.15 to 0.31).
_REFUSAL = re.compile(rb"No API key configured\. Use|api_key not configured \(no-tty\)")
_REFUSED_IN = ("sdk/lib/wbauth/authenticate.py", "sdk/wandb_login.py")
# A mode that is not among these is refused by pydantic (0.19 to 0.28); older releases list them elsewhere.
_MODES = re.compile(rb"(?<=\n)    mode: Literal\[[^\]]*\]")
_MODES_IN = ("sdk/wandb_settings.py",)
# The signs that wandb refuses in the name of a project (0.15 to 0.28).
_BARRED = re.compile(
    rb"invalid_chars_list = list\((\"(?:[^\"\\\n]|\\.)+\")\)(?=\n(?:.*\n){0,12}.*Invalid project name)"
)
_BARRED_SIGNS = re.compile(rb"\".*\"")
_QUOTED = re.compile(rb"\"(\w+)\"")
_ANONYMOUS = "WANDB_ANONYMOUS"  # with it an older wandb works without a key
_LOGS_IN = re.compile(r"wandb[ ._]?login|netrc|wandb\s+(?:disabled|offline|off)\b", re.IGNORECASE)
_OFFLINE = re.compile(r"^\s*mode\s*=\s*(offline|dryrun|disabled)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Tracker:
    """`key_from` names the variable or file that has a key, "" if none of `looked_at` has.

    `mode` is what is set, "" for the default.

    `modes` are those that the package accepts, and `modes_from` is where it lists them, as "path:line"; empty
    if that was not found, or if the mode may be another one where the job runs.

    `refuses` is where the package raises without a key and without a terminal, as "path:line". It is "" if
    that was not found, or if the job may have a key that is not visible here: on another node, or set by a
    script. `to_fill_in` is the text that a script exports in place of wandb's key, such as `<your_key>`: none
    of the package's releases accepts such signs in a key. `barred` are the signs that it refuses in the name
    of a project, "" if that was not found, and `barred_from` where.
    """

    name: str
    installed: bool
    key_from: str = ""
    mode: str = ""
    looked_at: tuple[str, ...] = ()
    refuses: str = ""
    modes: tuple[str, ...] = ()
    modes_from: str = ""
    to_fill_in: str = ""
    barred: str = ""
    barred_from: str = ""

    @property
    def mode_variable(self) -> str:
        """Return the variable that switches it to another mode."""
        return f"{self.name.upper()}_MODE"


@dataclass(frozen=True)
class Trackers:
    """All trackers. `offline` names a variable which indicates that there is no network, else ""."""

    trackers: tuple[Tracker, ...]
    offline: str = ""


@collector(kept=True)
def trackers(
    machine: Machine,
    target: Target,
    packages: Packages,
    variables: JobVariables,
    launch: Launch | Unknown,
    interpreter: Interpreter | Unknown,
    raylets: Raylets | Unknown,
) -> Trackers | Unknown:
    """Look for a key where each tracker would find one."""
    if target.names_no_environment:
        return Unknown("which packages the job imports is not known; name its interpreter with --python")
    environment = _Environment(machine, launch)
    offline_variables = (
        name
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        if variables.get(name) in ("1", "true", "True", "ON", "YES")
    )
    found = [_tracker(name, environment, packages) for name in _HOSTS]
    if (
        not isinstance(interpreter, Unknown)
        and isinstance(raylets, Unknown)
        and _runs_here(launch, variables)
    ):
        found = [
            _as_wandb_decides(tracker, interpreter.sys_path, is_anonymous=environment.has(_ANONYMOUS))
            if tracker.name == "wandb"
            else tracker
            for tracker in found
        ]
    return Trackers(tuple(found), next(offline_variables, ""))


def _runs_here(launch: Launch | Unknown, variables: JobVariables) -> bool:
    """Return whether the job starts its own Ray on this node, and no script may log in or disable wandb."""
    if isinstance(launch, Unknown) or launch.is_elsewhere or launch.ray_starts or launch.unread:
        return False
    logs_in = any(_LOGS_IN.search(load_text(path) or "") for path, _ in launch.files)
    return not logs_in and not variables.has("RAY_ADDRESS")


def _as_wandb_decides(tracker: Tracker, path: Sequence[str], *, is_anonymous: bool) -> Tracker:
    nothing = b"", ""
    modes, modes_from = next(_found_in(path, _MODES_IN, _MODES), nothing)
    _, refuses = nothing if is_anonymous else next(_found_in(path, _REFUSED_IN, _REFUSAL), nothing)
    names = tuple(name.decode("utf-8", "replace") for name in _QUOTED.findall(modes))
    signs, barred_from = next(_found_in(path, _MODES_IN, _BARRED), nothing)
    listed = _BARRED_SIGNS.search(signs)
    barred = str(ast.literal_eval(listed[0].decode("utf-8", "replace"))) if listed else ""
    return replace(
        tracker,
        refuses=refuses,
        modes=names,
        modes_from=modes_from,
        barred=barred,
        barred_from=barred_from if barred else "",
    )


def _found_in(
    path: Iterable[str], names: Iterable[str], pattern: re.Pattern[bytes]
) -> Iterator[tuple[bytes, str]]:
    """Yield what the pattern matches in these files of wandb, each with its place."""
    for file in (Path(entry, "wandb", name) for entry in path for name in names):
        content = read(file)
        match = pattern.search(content) if isinstance(content, bytes) else None
        if match and isinstance(content, bytes):
            yield match[0], f"{file}:{content.count(bytes([10]), 0, match.start()) + 1}"


class _Environment:
    """The job's variables, including those whose values no fact holds; only harmless values are returned."""

    def __init__(self, machine: Machine, launch: Launch | Unknown) -> None:
        self.machine = machine
        self._settings = () if isinstance(launch, Unknown) else launch.settings

    def has(self, name: str) -> bool:
        """Return whether a variable is set and not empty."""
        given = [setting for setting in self._settings if setting.name == name]
        if given:
            return not given[-1].removed and given[-1].value != ""
        return bool(self.machine.environ.get(name))

    def harmless(self, name: str) -> str:
        """Return the value of a variable that is not a secret."""
        given = [setting for setting in self._settings if setting.name == name]
        return (given[-1].value or "") if given else self.machine.environ.get(name, "")

    def to_fill_in(self, name: str) -> str:
        """Return the text that a script has in place of a secret; "" if it has none, or a secret."""
        given = [setting for setting in self._settings if setting.name == name]
        certain = given and not given[-1].removed and not given[-1].conditional
        value = given[-1].value if certain else None
        return value if value and TO_FILL_IN.fullmatch(value) else ""

    def text(self, path: str) -> str:
        """Return the text of a file, for a check of it."""
        try:
            with self.machine.at(path).open(encoding="utf-8", errors="replace") as file:
                return file.read(_LARGEST)
        except OSError:
            return ""


def _tracker(name: str, environment: _Environment, packages: Packages) -> Tracker:
    upper = name.upper()
    host = re.sub(r"^https?://|/.*$", "", environment.harmless(f"{upper}_BASE_URL")) or _HOSTS[name]
    variables = (
        (f"{upper}_API_KEY", f"{upper}_IDENTITY_TOKEN_FILE") if name == "wandb" else (f"{upper}_API_KEY",)
    )
    files = tuple(_files(name, environment))
    # swanlab's file has one entry, under the name of any server.
    entry = re.compile(rf"\bmachine\s+{re.escape(host) if name == 'wandb' else ''}")
    by_variable = (variable for variable in variables if environment.has(variable))
    by_file = (file for file in files if entry.search(environment.text(file)))
    key_from = next(by_variable, "") or next(by_file, "")
    tracker = Tracker(
        name, packages.get(name) is not None, key_from, _mode(name, environment), (variables[0], *files)
    )
    return replace(tracker, to_fill_in=environment.to_fill_in(variables[0])) if name == "wandb" else tracker


def _files(name: str, environment: _Environment) -> Iterator[str]:
    """Yield where each tracker looks for a key, if the user has a home."""
    home = environment.machine.home
    if name == "wandb":
        named = environment.harmless("NETRC")
        yield from (named,) if named else (f"{home}/.netrc", f"{home}/_netrc") if home else ()
    else:
        yield f"{environment.machine.cwd}/.swanlab/.netrc"
        own = f"{home}/.swanlab" if home else ""
        if folder := environment.harmless("SWANLAB_ROOT") or environment.harmless("SWANLAB_SAVE_DIR") or own:
            yield f"{folder}/.netrc"


def _mode(name: str, environment: _Environment) -> str:
    """Return the mode set by a variable, or for wandb by one of the files that `wandb offline` writes."""
    if mode := environment.harmless(f"{name.upper()}_MODE"):
        return mode
    if name != "wandb":
        return ""
    if environment.harmless("WANDB_DISABLED").lower() in ("1", "true", "yes"):
        return "disabled"
    files = (
        f"{environment.machine.cwd}/wandb/settings",
        f"{Path(environment.machine.home, '.config/wandb/settings')}",
    )
    return next((match[1] for file in files if (match := _OFFLINE.search(environment.text(file)))), "")
