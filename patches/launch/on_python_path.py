"""Fix for CFG129: put the folder of a module on PYTHONPATH before the training command."""

from __future__ import annotations

import shlex

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Launch
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModules
from verl_doctor.toolkit.edit.launch_text import first_line, launch_text
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("on-python-path", repairs="CFG129", safety="safe")
def on_python_path(
    finding: Finding, modules: MissingModules, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Put the folder of a module on PYTHONPATH before the training command.

    The module lies beside the file that imports or names it. The folder goes behind those that the script names itself.
    """
    detail = finding.subject.detail if finding.subject else ""
    folder = next((module.folder for module in modules.modules if module.name == detail), "")
    command = launch.command
    if not folder or command is None or command.path == COMMAND_LINE or not command.line:
        return Refusal("the training command is in no file; set PYTHONPATH by hand")
    added = f"export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{shlex.quote(folder)}"

    def edited(path: str, before: bytes) -> bytes:
        lines = launch_text(before, path).split("\n")
        first = first_line(lines, command.line)
        old = lines[first - 1]
        indent = old[: len(old) - len(old.lstrip())]
        lines.insert(first - 1, f"{indent}{added}  {marker.comment('CFG129')}")
        return "\n".join(lines).encode()

    return edited_files([command.path], sources, edited, f"{detail} lies in {folder}")
