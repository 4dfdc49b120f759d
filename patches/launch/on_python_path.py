"""Fix for CFG129: put the folder of a module on PYTHONPATH before the training command."""

from __future__ import annotations

import shlex

from verl_doctor.patches.shared.launch_lines import line_before_command
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModules
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("on-python-path", repairs="CFG129", safety="safe")
def on_python_path(
    finding: Finding, modules: MissingModules, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Put the folder of a module on PYTHONPATH before the training command.

    The module lies beside the file that imports or names it. The folder goes behind those that the script
    names itself.
    """
    name = finding.subject.detail if finding.subject else ""
    folder = next((module.folder for module in modules.modules if module.name == name), "")
    if not folder:
        return Refusal(f"{name} lies in no folder that is known")
    line = f"export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{shlex.quote(folder)}"
    return line_before_command(line, launch, sources, marker.comment("CFG129"), f"{name} lies in {folder}")
