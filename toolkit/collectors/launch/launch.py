"""How the job is started: the variables that its scripts set, the program that they run and its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.facts import Unknown

Kind = Literal["shell script", "runtime_env", "Dockerfile", "command line"]

COMMAND_LINE = "the command line"  # where a word stands that was typed behind `--`
THIS_SHELL = "this shell"  # where a variable is set that the doctor has, too
LARGEST = 2_000_000  # bytes of a launch file
_INTERPOLATION = re.compile(r"(\$\{[A-Za-z_]\w*(?:\.\w+)+(?::[^{}]*)?\}): bad substitution")
_CHANGES_FOLDER = re.compile(r"(?:^|[;&|(])\s*(?:cd|pushd)\b", re.MULTILINE)


@dataclass(frozen=True)
class Setting:
    """A variable that a file gives to the job, or takes from it (`removed`).

    `value` is None when reading cannot tell it, or when it may be a secret. `reaches_workers` says that Ray workers get
    it too (a `runtime_env` does that), not only the process that the script starts; with `by_raylet` they inherit it from a
    Ray that the script starts. `conditional` says that it stands under a condition or in a loop, so that it may not come
    to it.
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
        """Whether a file sets it, rather than the shell or what was typed."""
        return self.path not in (COMMAND_LINE, THIS_SHELL)


@dataclass(frozen=True)
class Word:
    """One word of a command as the shell would hand it over. `text` is None when reading cannot tell it.

    `written` is how it stands in the file. A word without `text` may be several, or none at all (`$EXTRA_ARGS`).
    `conditional` says that it is there under a condition only.
    """

    text: str | None
    path: str
    line: int
    written: str = ""
    conditional: bool = False


@dataclass(frozen=True)
class Command:
    """The command that starts training: `module` is "verl.trainer.main_ppo", or the path of a script, `words` what follows.

    `launcher` are the words of a launcher of processes (torchrun) with its options, `names` the programs that are called on the way.
    `folder` is where it starts, "" where that cannot be told.
    """

    module: str
    words: tuple[Word, ...]
    path: str
    line: int
    conditional: bool = False
    launcher: tuple[Word, ...] = ()
    names: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True)
class WorkingDir:
    """The `working_dir` of a `runtime_env`: Ray packs that folder, less `excludes`, and sends it to the cluster.

    `folder` is as it is written, relative to where the job is started; None when reading cannot tell it. `path` and `line` are
    where it is named, and `listed_in` is the YAML file that lists the excludes or could list them, "" when there is none.
    """

    folder: str | None
    path: str
    line: int
    excludes: tuple[str, ...] = ()
    listed_in: str = ""


@dataclass(frozen=True)
class ScriptError:
    """The line at which bash stops in a script, and its words, or what is wrong with a `runtime_env`; line 0: all of it."""

    path: str
    line: int
    message: str

    @property
    def interpolation(self) -> str:
        """Hydra's interpolation that bash takes for a variable of its own, "" when it stops at something else."""
        match = _INTERPOLATION.match(self.message)
        return match[1] if match else ""


@dataclass(frozen=True)
class Launch:
    """All files and words that the user named, read without running them.

    `settings` are what the command's environment is given, in order; all that was met when there is no command.
    `others` are further commands that start training. `lost` are overrides that stand where a command should, so that the
    shell takes them for one. `carriage_returns` are scripts whose lines end as in Windows. `unread` are parts that could not
    be followed, each a sentence with its line. `refused` are the named scripts that bash cannot parse,
    and `runtime_env` files that are none; `stopped` is where bash ends before training starts, although it can parse the script.
    `ray_starts` are the words behind each `ray start`, and
    `stops_ray` says that a `ray stop` comes before all of them. `submitted` says that the job is
    handed to `ray job submit`, so that it does not inherit what the script exports. `nodes` is how many a batch script asks
    Slurm for, None when it does not say. `limits` are the words behind each `ulimit`, "" for one that is not known.
    `working_dir` is the folder that Ray sends along. `hollow` are words of the command as bash hands them over where it finds
    variables that nobody sets: empty in their place.
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


def where_set(name: str, variables: Variables, launch: Launch | Unknown) -> list[Setting]:
    """Every place that sets a variable for the job, launch files first. What a file takes away again counts in no shell."""
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
    """Return the text of a launch file with Unix line ends; None when it is no text, too large, or cannot be read.

    What is `planned` for it counts in place of what lies on the disk.
    """
    if planned and path in planned:
        return planned[path].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    try:
        if not os.path.isfile(path):  # a pipe would be waited for
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            content = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None
    if b"\0" in content or len(content) > LARGEST:
        return None
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def changes_folder(launch: Launch) -> bool:
    """Whether a script may start the job in a folder that is not known."""
    if launch.command is not None and launch.command.folder:
        return False  # it is known
    return any(_CHANGES_FOLDER.search(load_text(path) or "") for path, _ in launch.files)


def folder_of(launch: Launch | Unknown, here: Path) -> Path:
    """Where the job starts: the folder that its script enters, which the script may make itself, or else this one."""
    if isinstance(launch, Unknown) or launch.command is None or not launch.command.folder:
        return here
    return Path(launch.command.folder)
