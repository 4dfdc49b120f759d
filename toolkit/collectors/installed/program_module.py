"""The module of verl that the launch script starts, and whether the installed verl has it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch, changes_folder
from verl_doctor.toolkit.facts import Absent, Unknown, collector

_STARTS = b"__main__"  # marks a file as a program


@dataclass(frozen=True)
class ProgramModule:
    """The `module` as the script names it at `path` and `line`.

    `verl` is the folder of the package, of this `version`. `programs` are the modules of the tree that can be
    started, listed if the given module is `missing`.
    """

    module: str
    path: str
    line: int
    verl: str
    version: str = ""
    missing: bool = False
    programs: tuple[str, ...] = ()


@collector(kept=True)
def program_module(launch: Launch, trees: VerlTrees) -> ProgramModule | Unknown:
    """Look for the module's file in the tree that the job imports."""
    command, tree = launch.command, trees.imported
    if command is None or not command.module.startswith("verl.") or command.module.endswith(".py"):
        return Absent("the launch script starts no module of verl's")
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
