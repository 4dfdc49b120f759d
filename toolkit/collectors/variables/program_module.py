"""The module that the launch script starts, and whether the installed verl, or the job's path, has it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.import_path import is_editable, is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.job_program import base_names
from verl_doctor.toolkit.collectors.launch.launch import (
    COMMAND_LINE,
    Command,
    Launch,
    changes_folder,
    folder_of,
    load_text,
    may_be_made,
)
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_STARTS = b"__main__"  # marks a file as a program
# Programs that start another in an environment of their own, into which they may install the user's project.
_RUNNERS = frozenset(
    {"conda", "mamba", "micromamba", "uv", "poetry", "pixi", "pdm", "hatch", "rye", "pipenv", "pyenv"}
)
# What starts a program in another folder, or sets variables that no launch file shows.
_UNKNOWN_START = re.compile(
    r"--(?:chdir|(?:working-)?directory|cwd)\b|^#SBATCH\s+-D|\bsrun\b.*\s-D|\s-x\s+PYTHONPATH="
    r"|\b(?:module|ml|spack)\s+load\b|\bdirenv\b|(?:^|[;&|({]|\b(?:then|do|else)\b)\s*eval\b|\bexport\s+[\"']?[$`]",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ProgramModule:
    """The `module` as the script names it at `path` and `line`.

    `verl` is the folder of the package, of this `version`. `programs` are the modules of the tree that can be
    started, listed if the given module is `missing`. `lacking` is the package or module that no folder of the
    job's path has, where the given module is not one of verl's.
    """

    module: str
    path: str
    line: int
    verl: str
    version: str = ""
    missing: bool = False
    programs: tuple[str, ...] = ()
    lacking: str = ""


@collector(kept=True)
def program_module(
    launch: Launch,
    trees: VerlTrees,
    interpreter: Interpreter | Unknown,
    job: JobVariables | Unknown,
    machine: Machine,
) -> ProgramModule | Unknown:
    """Look for the module's file in the tree that the job imports."""
    command, tree = launch.command, trees.imported
    is_name = command is not None and all(part.isidentifier() for part in command.module.split("."))
    if command is None or not is_name or command.module.endswith(".py"):
        return Absent("the launch script starts no module")
    if not command.module.startswith("verl."):
        return _of_others(command, launch, tree, _path(launch, interpreter, job, machine), machine.cwd)
    if launch.is_elsewhere or tree.module != "verl" or tree.place in ("off the path", "vendored"):
        return Absent("which verl the job imports cannot be determined")
    if tree.place == "above the current folder" or changes_folder(launch):
        return Absent("the script may start the job in another folder, with another verl")
    folder = Path(tree.folder)
    place = folder.joinpath(*command.module.split(".")[1:])
    exists = any(
        os.path.isfile(path) for path in (place.with_name(f"{place.name}.py"), place / "__main__.py")
    )
    programs = () if exists else tuple(_programs(folder))
    return ProgramModule(
        command.module, command.path, command.line, tree.folder, tree.version, not exists, programs
    )


def _path(
    launch: Launch, interpreter: Interpreter | Unknown, job: JobVariables | Unknown, machine: Machine
) -> tuple[str, ...]:
    """Return the folders in which the job looks for modules, () where these are not known."""
    if launch.is_elsewhere or changes_folder(launch) or launch.unread or launch.installs:
        return ()
    if any(_UNKNOWN_START.search(load_text(file) or "") for file, _ in launch.files):
        return ()
    if isinstance(interpreter, Unknown) or isinstance(job, Unknown) or "PYTHONPATH" in job.undetermined:
        return ()
    here, own = folder_of(launch, machine.cwd), job.get("PYTHONPATH").split(os.pathsep)
    if any("$" in entry or entry.startswith("~") for entry in own):
        return ()
    added = (str(here / entry) for entry in own if entry)
    return (str(here), *added, *interpreter.sys_path, *interpreter.site_packages)


def _of_others(
    command: Command, launch: Launch, tree: Tree, path: Sequence[str], here: Path
) -> ProgramModule | Absent:
    """Look for a module that is not one of verl's. `here` is the current folder."""
    first, last = command.module.partition(".")[0], command.module.rpartition(".")[2]
    made = any(may_be_made(launch, f"{entry}/{first}{end}") for entry in path for end in ("", ".py"))
    runs = not _RUNNERS.isdisjoint(base_names(command.names))
    # Without a `cd`, the script may be meant for a folder above it, such as the top of its repository.
    stays = folder_of(launch, here) == here and command.path != COMMAND_LINE
    above = map(str, Path(command.path).parents) if stays else ()
    lacking = "" if made or runs or not path else _lacking(command.module, (*path, *above))
    if not lacking:
        return Absent("the launch script starts no module of verl's")
    moved = sorted(Path(tree.folder).rglob(f"{last}.py"))
    programs = tuple(
        ".".join((tree.module, *file.relative_to(tree.folder).with_suffix("").parts)) for file in moved
    )
    return ProgramModule(
        module=command.module,
        path=command.path,
        line=command.line,
        verl=tree.folder,
        version=tree.version,
        missing=True,
        programs=programs,
        lacking=lacking,
    )


def _lacking(module: str, path: Sequence[str]) -> str:
    """Return the first part of a module's name that is certainly not there, "" if it may be complete.

    A package without `__init__.py` may lie in several folders of the path; one with it may look elsewhere.
    """
    first, *parts = module.split(".")
    if not is_on_path(first, path):
        return first
    folders = [folder for entry in path if os.path.isdir(folder := Path(entry, first))]
    others = [entry for entry in path if not os.path.isdir(Path(entry, first))]
    if not folders or is_on_path(first, others) or is_editable(first, path):
        return ""
    name = first
    for part in parts:
        if any(os.path.isfile(folder / "__init__.py") for folder in folders):
            return ""
        name = f"{name}.{part}"
        if not is_on_path(part, map(str, folders)):
            return name
        folders = [folder / part for folder in folders if os.path.isdir(folder / part)]
    return ""


def _programs(folder: Path) -> list[str]:
    found = []
    for path in sorted((folder / "trainer").glob("*.py")):
        try:
            is_program = _STARTS in path.read_bytes()
        except OSError:
            continue
        if is_program:
            found.append(f"verl.trainer.{path.stem}")
    return found
