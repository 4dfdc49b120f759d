"""How the job is started: the variables that its scripts set, the program that they run and its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.shell.hurdle import Hurdle
from verl_doctor.toolkit.target import LARGEST_SCRIPT

Kind = Literal["shell script", "runtime_env", "Dockerfile", "command line"]

COMMAND_LINE = "the command line"  # the place of a word typed after `--`
THIS_SHELL = "this shell"  # the place of a variable that verl-doctor has too
TO_FILL_IN = re.compile(r"<[A-Za-z][\w .-]{0,60}>")
"""A text that a template has in place of a secret, such as `<your_key>`."""
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
"""A variable that bash replaces."""
_OF_VERL = re.compile(r"(?:.*/)?(?:verl|recipe)[./]")
_INTERPOLATION = re.compile(r"(\$\{[A-Za-z_]\w*(?:\.\w+)+(?::[^{}]*)?\}): bad substitution")
_CHANGES_FOLDER = re.compile(r"(?:^|[;&|({]|\b(?:then|do|else)\b)\s*(?:cd|pushd)\b|\bchdir\(", re.MULTILINE)


@dataclass(frozen=True)
class Setting:
    """A variable that a file sets for the job or removes from its environment (`removed`).

    `value` is None if it cannot be determined or may be a secret. `reaches_workers`: Ray workers get it too
    (through a `runtime_env`), not only the process that the script starts; with `by_raylet` they inherit it
    from a Ray that the script starts. `conditional`: it is under a condition or in a loop and may not be
    executed.
    """

    name: str
    value: str | None
    path: str
    line: int
    removed: bool = False
    reaches_workers: bool = False
    conditional: bool = False
    by_raylet: bool = False

    @property
    def in_file(self) -> bool:
        """Whether a file sets it, rather than the shell or the command line."""
        return self.path not in (COMMAND_LINE, THIS_SHELL)


@dataclass(frozen=True)
class Word:
    """One word of a command as the shell would pass it. `text` is None if it cannot be determined.

    `written` is its source text. A word without `text` may expand to several words or to none
    (`$EXTRA_ARGS`). `conditional`: it is present only under a condition.
    """

    text: str | None
    path: str
    line: int
    written: str = ""
    conditional: bool = False


@dataclass(frozen=True)
class Command:
    """The command that starts training: the `module` or script, and its arguments, `words`.

    `module` is "verl.trainer.main_ppo" or the path of a script.

    `launcher` are the words of a process launcher (torchrun) with its options, `names` the programs called on
    the way. `folder` is where the command starts, "" if unknown. `written` are the sources and configuration
    files that the script writes before, each with its text, None if that is unknown. `timeout` ends the
    command after `ends_after` seconds.
    """

    module: str
    words: tuple[Word, ...]
    path: str
    line: int
    conditional: bool = False
    launcher: tuple[Word, ...] = ()
    names: tuple[str, ...] = ()
    folder: str = ""
    written: tuple[tuple[str, str | None], ...] = ()
    ends_after: float | None = None

    @property
    def of_verl(self) -> bool:
        """Whether it is a program of verl's own, or of one of verl's recipes."""
        return _OF_VERL.match(self.module) is not None


@dataclass(frozen=True)
class WorkingDir:
    """The `working_dir` of a `runtime_env`, which Ray packs, less `excludes`, and sends to the cluster.

    `folder` is the source text, relative to where the job is started; None if it cannot be determined. `path`
    and `line` are where it is named; `listed_in` is the YAML file that lists, or could list, the excludes, ""
    if there is none.
    """

    folder: str | None
    path: str
    line: int
    excludes: tuple[str, ...] = ()
    listed_in: str = ""


@dataclass(frozen=True)
class LostAssignment:
    """A line that was meant to assign to a variable of the job's command.

    In `NAME = value` bash takes NAME for a program; `NAME=value` in the shell around the command's needs an
    export.
    """

    name: str
    path: str
    line: int


@dataclass(frozen=True)
class ScriptError:
    """The line at which bash stops in a script and its message, or the fault of a `runtime_env`.

    Line 0 stands for the whole file.

    `extended` is an unset variable that the line only extends, as in `PATH=/x:$PATH`. `lacks_arguments`: the
    script ends because none were named after it. `hurdle` is what bash stumbles over, `name` the variable,
    folder or file concerned.
    """

    path: str
    line: int
    message: str
    extended: str = ""
    lacks_arguments: bool = False
    hurdle: Hurdle = ""
    name: str = ""

    @property
    def interpolation(self) -> str:
        """Return the Hydra interpolation that bash parses as its own variable.

        The result is "" if bash stops at something else.
        """
        match = _INTERPOLATION.match(self.message)
        return match[1] if match else ""


@dataclass(frozen=True)
class Launch:
    """All files and words that the user named, read without running them.

    `settings` are the variables given to the command, in order; without a command, every variable found.
    `others` are further commands that start training. `lost` are overrides in the place of a command, which
    the shell would run as commands, and those of an array without an index (`written` is `$NAME`).
    `carriage_returns` are scripts with Windows line ends. `unread` are parts that could not be followed, each
    a sentence with its line. `refused` are the named scripts that bash cannot parse and invalid `runtime_env`
    files; `stopped` is where bash stops before training starts in a script that it can parse. `ray_starts`
    are the words after each `ray start`; `stops_ray`: a `ray stop` precedes all of them. `submitted`: the job
    is passed to `ray job submit` and does not inherit what the script exports. `nodes` is how many nodes a
    batch script requests from Slurm, None if it does not specify; `gpus_per_node` likewise. `limits` are the
    words after each `ulimit`, "" for an unknown word. `working_dir` is the folder that Ray sends with the
    job. `hollow` are the words of the command in which bash replaces unset variables by nothing, `spaced` the
    lines that were meant to assign to these, `not_exported` those that assign to them in another shell than
    the command's. `made` are paths that programs called before the job may create, with all below them,
    `folders` those that `mkdir` makes, empty, `removed` those that the script may remove, move or replace
    before; `installs`: one of these programs may install packages. `in_container`: the job starts in a
    container or over ssh, where other files and packages are.
    """

    files: tuple[tuple[str, Kind], ...]
    settings: tuple[Setting, ...] = ()
    command: Command | None = None
    others: tuple[Command, ...] = ()
    lost: tuple[Word, ...] = ()
    carriage_returns: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    refused: tuple[ScriptError, ...] = ()
    stopped: tuple[ScriptError, ...] = ()
    ray_starts: tuple[tuple[Word, ...], ...] = ()
    stops_ray: bool = False
    submitted: bool = False
    nodes: int | None = None
    limits: tuple[tuple[str, ...], ...] = ()
    working_dir: WorkingDir | None = None
    hollow: tuple[Word, ...] = ()
    spaced: tuple[LostAssignment, ...] = ()
    not_exported: tuple[LostAssignment, ...] = ()
    made: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    installs: bool = False
    in_container: bool = False

    @property
    def is_elsewhere(self) -> bool:
        """Whether the job runs where other files may be."""
        return self.submitted or self.in_container


def where_set(name: str, variables: Variables, launch: Launch | Unknown) -> list[Setting]:
    """Return every place that sets a variable for the job, launch files first.

    If a file removes it, the shell's value does not count.
    """
    given = (
        []
        if isinstance(launch, Unknown)
        else [setting for setting in launch.settings if setting.name == name]
    )
    found = [setting for setting in given if not setting.removed]
    if len(found) == len(given) and name in variables.names():
        found.append(Setting(name, variables.values.get(name), THIS_SHELL, 0))
    return found


def load_text(path: str, planned: Mapping[str, bytes] | None = None) -> str | None:
    """Return the text of a launch file with Unix line ends; None if it is not text, too large or unreadable.

    The `planned` contents take precedence over the file on disk.
    """
    if planned and path in planned:
        return planned[path].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    try:
        if not os.path.isfile(path):  # reading a pipe would block
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            content = file.read(LARGEST_SCRIPT + 1)
    except (OSError, ValueError):
        return None
    if b"\0" in content or len(content) > LARGEST_SCRIPT:
        return None
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def changes_folder(launch: Launch) -> bool:
    """Return whether a script may start the job in an unknown folder."""
    if launch.command is not None and launch.command.folder:
        return False
    return any(_CHANGES_FOLDER.search(load_text(path) or "") for path, _ in launch.files)


def folder_of(launch: Launch | Unknown, here: Path) -> Path:
    """Return where the job starts: the folder that its script enters, and may create, else `here`."""
    if isinstance(launch, Unknown) or launch.command is None or not launch.command.folder:
        return here
    return Path(launch.command.folder)


def written_by(launch: Launch | Unknown) -> dict[str, str | None]:
    """Return the files that the script writes before the job, by path: what lies there now does not count."""
    return dict(launch.command.written) if isinstance(launch, Launch) and launch.command is not None else {}


def may_be_made(launch: Launch | Unknown, path: str) -> bool:
    """Return whether a program that the script calls before the job may create this path."""
    return not isinstance(launch, Unknown) and _is_among(path, launch.made)


def may_have_folder(launch: Launch | Unknown, path: str) -> bool:
    """Return whether the script may make this folder before the job, or one below it."""
    if isinstance(launch, Unknown):
        return False
    path = os.path.normpath(path)
    made = any(folder in ("/", path) or folder.startswith(f"{path}/") for folder in launch.folders)
    return made or may_be_made(launch, path)


def may_be_changed(launch: Launch, path: str) -> bool:
    """Return whether the script may change this path, or anything below it, before the job.

    To change is to create, remove, move or replace.
    """
    return bool(launch.unread) or _is_among(path, (*launch.made, *launch.removed))


def _is_among(path: str, places: Iterable[str]) -> bool:
    """Return whether a path is one of these normalised ones, or lies below or above one."""
    path = path and os.path.normpath(path)
    return path != "" and any(
        place in ("/", path) or path.startswith(f"{place}/") or place.startswith(f"{path}/")
        for place in places
    )
