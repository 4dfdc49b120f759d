"""The module that the launch script starts, and whether the installed verl, or the job's path, has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import (
    Command,
    Launch,
    changes_folder,
    folder_of,
    may_be_made,
)
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_STARTS = b"__main__"  # marks a file as a program


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
    if command is None or not command.module or command.module.endswith(".py"):
        return Absent("the launch script starts no module")
    if not command.module.startswith("verl."):
        return _of_others(command, launch, tree, _path(launch, interpreter, job, machine))
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
    if launch.is_elsewhere or changes_folder(launch):
        return ()
    if isinstance(interpreter, Unknown) or isinstance(job, Unknown) or "PYTHONPATH" in job.undetermined:
        return ()
    here, own = folder_of(launch, machine.cwd), job.get("PYTHONPATH").split(os.pathsep)
    if any("$" in entry for entry in own):
        return ()
    added = (str(here / entry) for entry in own if entry)
    return (str(here), *added, *interpreter.sys_path, *interpreter.site_packages)


def _of_others(command: Command, launch: Launch, tree: Tree, path: Sequence[str]) -> ProgramModule | Absent:
    """Look for a module that is not one of verl's."""
    first, *_, last = command.module.split(".")
    made = any(may_be_made(launch, f"{entry}/{first}{end}") for entry in path for end in ("", ".py"))
    lacking = "" if made or not path else _lacking(command.module, path)
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
    if not folders or is_on_path(first, [entry for entry in path if not os.path.isdir(Path(entry, first))]):
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
